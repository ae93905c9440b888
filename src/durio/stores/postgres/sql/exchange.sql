-- Done outcomes in, claims out: the one statement, and the one round trip, of a busy worker.
-- It is `exchange_finish` and `exchange_claim` in one, by places of rows instead of keys.
-- A join by `any(array[...])` can only be a probe: statements.py says why.
--
-- $1 to $9 as in parts/done  $10 now, null: the server's
-- $11 lanes  $12 limits  $13 jobs to pass over, for a lane that came before
-- $14 want  $15 tasks that it knows, null: all  $16 now for leases, null: the server's
-- $17 to $21 where to look: which lane of $11, from which rank and id, up to which (without it)
-- $22 lanes in which something may be due  $23 since how many seconds, at most
--
-- When something is due there nothing is done at all, and the first row says so:
-- due jobs are made ready first, and a statement does not see what it has inserted itself.
-- The first row is about the call, every other one is a claim.
with
t as materialized (
  select coalesce($10::float8, extract(epoch from clock_timestamp())::float8) as now
),
-- Guarded queues are locked before anything else; mostly there are none.
bounded as materialized (
  select q.name from {schema}.queue as q
  where q.name = any($11::text[]) and (q.maxsize is not null or q.hand_maxsize is not null)
    and coalesce(q.hand_maxsize, q.maxsize) >= 0
  order by q.name
  for no key update
),
due as materialized (
  select min(s.run_at) as run_at
  from t cross join unnest($22::text[], $23::float8[]) as l (lane, age)
  cross join lateral (
    select d.run_at from {schema}.sched as d
    where d.lane = l.lane and d.run_at >= t.now - l.age
    order by d.run_at limit 1
  ) as s
),
-- So long did that take: old row versions may be in its way.
spent as materialized (
  select extract(epoch from clock_timestamp() - statement_timestamp())::float8 as seconds
  from due
),
go as materialized (
  select coalesce(due.run_at > t.now, true) and (select count(*) from bounded) >= 0 as ok,
    spent.seconds
  from due, t, spent
),
{done},
-- How long the look for jobs takes says whether old row versions are in its way.
began as materialized (select clock_timestamp() as at from go where go.ok),
l as materialized (
  select l.lane, l.room, coalesce(l.passed, 0) as passed, l.n
  from unnest($11::text[], $12::int4[], $13::int4[]) with ordinality
    as l (lane, room, passed, n)
  where not exists (select 1 from {schema}.queue as q where q.name = l.lane and q.paused)
),
span as materialized (
  select s.n, s.rank, s.first, s.end_rank, s.last
  from unnest($17::int4[], $18::int2[], $19::uuid[], $20::int2[], $21::uuid[])
    as s (n, rank, first, end_rank, last)
),
c as materialized (
  select q.place
  from l
  cross join lateral (
    select f.place
    from span
    cross join lateral (
      select r.ctid as place from {schema}.ready as r
      where r.lane = l.lane and (r.rank, r.id) >= (span.rank, span.first)
        and (r.rank, r.id) < (span.end_rank, span.last)
        and ($15::text[] is null or (
          select b.task from {schema}.job as b where b.id = r.id
        ) = any($15::text[]))
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
  limit $14::int4
),
d as (
  delete from {schema}.ready as r where r.ctid = any(array(select place from c))
  returning r.lane, r.id, r.claim_no
),
-- Under a bound the waiting jobs are counted.
g as (
  update {schema}.queue as q set depth = q.depth - s.jobs
  from (
    select lane, count(*) as jobs from d where lane in (select name from bounded) group by lane
  ) as s
  where exists (select 1 from bounded) and q.name = any(array[s.lane])
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
-- Keys of jobs that are over, and those that hold only while waiting: as in `key_free`. As
-- arrays: a row that has changed is looked at again, and a join would begin anew for that.
f as materialized (
  select array_agg(ended.ukey) as keys, array_agg(ended.id) as ids
  from (
    select ukey, id from e
    where ukey is not null and (umode <> 2 or (keep_seconds <= 0 and keep_count is null))
    union all
    select ukey, id from got where umode = 0
  ) as ended
),
freed as materialized (
  select u.ctid as place from {schema}.uniq as u
  where u.key = any((select keys from f)::bytea[]) and u.id = any((select ids from f)::uuid[])
  for update skip locked
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
  ), (select seconds from go)
union all
select * from (
  select id, claim_no, lane, rank, task, payload, retried, losses, lost, snoozed, opts,
    parked_at, null::bool, null::float8, null::float8, null::int4[], null::float8
  from got
  order by rank, id
) as claims
