-- A part of `exchange` and `exchange_finish`: done outcomes, each fenced, become history.
-- $1 ids  $2 claim numbers  $3 results  $4 seconds that each may be read
-- $5 seconds, $6 bucket, $7 count: a retention of its own (short arrays: none)
-- $8 worker  $9 seconds that done jobs stay. Before it: `t` with the time, and whether to `go`.
--
-- No join may decide how `run` and `job` are looked at: the planner takes a table that was
-- empty when it was last counted for one row, and would walk over all dead versions of it.
x as (
  delete from {schema}.run as r
  where r.id = any($1::uuid[]) and r.worker + 0 = $8::int4
    and r.claim_no = ($2::int4[])[width_bucket(r.id, $1::uuid[])]
    and (select ok from go)
  returning r.id, r.started_at, r.progress, width_bucket(r.id, $1::uuid[]) as n
),
xs as materialized (
  select array_agg(x.id order by x.n) as ids, array_agg(x.started_at order by x.n) as starts,
    array_agg(x.progress order by x.n) as notes
  from x
),
j as (
  delete from {schema}.job as b where b.id = any((select ids from xs)::uuid[])
  returning b.id, b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost, b.snoozed,
    b.run_at, b.ukey, b.umode, b.opts, b.errors, b.created_at,
    width_bucket(b.id, $1::uuid[]) as n, width_bucket(b.id, (select ids from xs)) as k
),
-- Within a key's window the done job answers for it, with its result: both stay as long.
e as materialized (
  select j.*, t.now, ($2::int4[])[j.n] as claim_no,
    (select starts from xs)[j.k] as started_at, (select notes from xs)[j.k] as progress,
    ($3::bytea[])[j.n] as result, ($4::float8[])[j.n] as result_seconds,
    ($5::float8[])[j.n] as keep_seconds, ($6::text[])[j.n] as bucket,
    ($7::int4[])[j.n] as keep_count, (
      select u.until from {schema}.uniq as u
      where j.umode = 2 and u.key = j.ukey and u.id = j.id
    ) as until
  from j, t
),
h as (
  insert into {schema}.hist (
    id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, finished_at, result, result_until,
    ukey, umode
  )
  select id, lane, rank, 4, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, now, result,
    greatest(now + result_seconds, until), ukey, umode
  from e
  where keep_seconds is null and (until is null or until <= now + $9::float8)
),
p as (
  insert into {schema}.kept (
    id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, finished_at, result, result_until,
    ukey, umode, gone_at, bucket, keep_count
  )
  select id, lane, rank, 4, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, now, result,
    greatest(now + result_seconds, until), ukey, umode,
    greatest(now + coalesce(keep_seconds, $9::float8), until),
    case when keep_count is not null then bucket end, keep_count
  from e
  where (keep_seconds > 0 or keep_count is not null)
    or (keep_seconds is null and until > now + $9::float8)
)
