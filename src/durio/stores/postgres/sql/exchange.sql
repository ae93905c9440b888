-- Done outcomes in, claims out: the one statement, and the one round trip, of a busy worker.
-- It is `exchange_finish` and `exchange_claim` in one, by places of rows instead of keys.
--
-- $1 ids  $2 claim numbers  $3 results  $4 seconds that each may be read
-- $5 seconds, $6 bucket, $7 count: a retention of its own (short arrays: none)
-- $8 worker  $9 lanes  $10 limits  $11 jobs to pass over, for a lane that came before
-- $12 want  $13 tasks that it knows, null: all  $14 seconds that done jobs stay
-- $15 now, null: the server's  $16 the same for leases
-- $17 to $20 where to look: which lane of $9, first and last rank, first id in the first rank
-- $21 lanes in which something may be due
--
-- When something is due there nothing is done at all, and the first row says so:
-- due jobs are made ready first, and a statement does not see what it has inserted itself.
-- The first row is about the call, every other one is a claim.
with
t as materialized (
  select coalesce($15::float8, extract(epoch from clock_timestamp())::float8) as now
),
-- Guarded queues are locked before anything else; mostly there are none.
bounded as materialized (
  select q.name from {schema}.queue as q
  where q.name = any($9::text[]) and (q.maxsize is not null or q.hand_maxsize is not null)
    and coalesce(q.hand_maxsize, q.maxsize) >= 0
  order by q.name
  for no key update
),
due as materialized (
  select min(s.run_at) as run_at
  from unnest($21::text[]) as l (lane)
  cross join lateral (
    select d.run_at from {schema}.sched as d where d.lane = l.lane order by d.run_at limit 1
  ) as s
),
go as materialized (
  select coalesce(due.run_at > t.now, true) and (select count(*) from bounded) >= 0 as ok
  from due, t
),
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
  where keep_seconds is null and (until is null or until <= now + $14::float8)
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
    greatest(now + coalesce(keep_seconds, $14::float8), until),
    case when keep_count is not null then bucket end, keep_count
  from e
  where (keep_seconds > 0 or keep_count is not null)
    or (keep_seconds is null and until > now + $14::float8)
),
-- How long the look for jobs takes says whether old row versions are in its way.
began as materialized (select clock_timestamp() as at from go where go.ok),
l as materialized (
  select l.lane, l.room, coalesce(l.passed, 0) as passed, l.n
  from unnest($9::text[], $10::int4[], $11::int4[]) with ordinality
    as l (lane, room, passed, n)
  where not exists (select 1 from {schema}.queue as q where q.name = l.lane and q.paused)
),
span as materialized (
  select s.n, s.low, s.high, s.id
  from unnest($17::int4[], $18::int2[], $19::int2[], $20::uuid[]) as s (n, low, high, id)
),
c as materialized (
  select q.place
  from l
  cross join lateral (
    select f.place
    from span
    cross join lateral (
      select r.ctid as place from {schema}.ready as r
      where r.lane = l.lane and (r.rank, r.id) >= (span.low, span.id)
        and r.rank <= span.high
        and ($13::text[] is null or (
          select b.task from {schema}.job as b where b.id = r.id
        ) = any($13::text[]))
      order by r.rank, r.id
      limit l.room + l.passed
      for update skip locked
    ) as f
    where span.n = l.n
    limit l.room offset l.passed
  ) as q
  where (select at from began) is not null and exists (
    select 1 from {schema}.worker as w
    where w.id = $8::int4 and not w.rescued and w.expires_at > coalesce(
      $16::float8, extract(epoch from clock_timestamp())::float8
    )
  )
  limit $12::int4
),
d as (
  delete from {schema}.ready as r where r.ctid = any(array(select place from c))
  returning r.lane, r.id, r.claim_no
),
-- Under a bound the waiting jobs are counted.
g as (
  update {schema}.queue as q set depth = q.depth - s.jobs
  from (select lane, count(*) as jobs from d group by lane) as s
  where exists (select 1 from bounded) and q.name = s.lane
    and q.name in (select name from bounded)
),
n as (
  insert into {schema}.run (id, worker, claim_no, started_at)
  select d.id, $8::int4, d.claim_no + 1, t.now from d, t
  returning id, claim_no
),
ns as materialized (
  select array_agg(n.id order by n.id) as ids, array_agg(n.claim_no order by n.id) as numbers
  from n
),
got as materialized (
  select b.id, (select numbers from ns)[width_bucket(b.id, (select ids from ns))] as claim_no,
    b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost, b.snoozed, b.opts,
    b.parked_at, b.ukey, b.umode
  from {schema}.job as b where b.id = any((select ids from ns)::uuid[])
),
-- Keys of jobs that are over, and those that hold only while waiting: locked in order.
freed as materialized (
  select u.ctid as place
  from (
    select ukey, id from e
    where ukey is not null and (umode <> 2 or (keep_seconds <= 0 and keep_count is null))
    union all
    select ukey, id from got where umode = 0
  ) as f
  join {schema}.uniq as u on u.key = f.ukey and u.id = f.id
  order by u.key
  for update of u
),
k as (
  delete from {schema}.uniq as u where u.ctid = any(array(select place from freed))
)
select null::uuid, null::int4, null::text, null::int2, null::text, null::bytea, null::int4,
  null::int4, null::int2, null::int4, null::bytea, null::float8,
  (select ok from go), (select due.run_at - t.now from due, t), (
    select extract(epoch from clock_timestamp() - (select at from began))::float8
    from (select count(*) as jobs from c) as looked where looked.jobs >= 0
  ), array(
    select d.n::int4 from unnest($1::uuid[]) with ordinality as d (id, n)
    where d.n not in (select x.n from x)
  )
union all
select * from (
  select id, claim_no, lane, rank, task, payload, retried, losses, lost, snoozed, opts,
    parked_at, null::bool, null::float8, null::float8, null::int4[]
  from got
  order by rank, id
) as claims
