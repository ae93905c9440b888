-- Claims from these lanes; what was due has been made ready before. The first row is about
-- the call. $1 worker  $2 to $6 as $11 to $15 of `exchange`  $7 now  $8 to $15 as $16 to $23
with
t as materialized (
  select coalesce($7::float8, extract(epoch from clock_timestamp())::float8) as now
),
head as materialized (
  select l.lane, s.run_at
  from t cross join unnest($14::text[], $15::float8[]) as l (lane, age)
  cross join lateral (
    select d.run_at from {schema}.sched as d
    where d.lane = l.lane and d.run_at >= t.now - l.age
    order by d.run_at limit 1
  ) as s
),
due as materialized (select min(head.run_at) as run_at from head),
began as materialized (select clock_timestamp() as at),
l as materialized (
  select l.lane, l.room, coalesce(l.passed, 0) as passed, l.n
  from unnest($2::text[], $3::int4[], $4::int4[]) with ordinality
    as l (lane, room, passed, n)
  where not exists (select 1 from {schema}.queue as q where q.name = l.lane and q.paused)
),
span as materialized (
  select s.n, s.rank, s.first, s.end_rank, s.last
  from unnest($9::int4[], $10::int2[], $11::uuid[], $12::int2[], $13::uuid[])
    as s (n, rank, first, end_rank, last)
),
c as materialized (
  select q.lane, q.rank, q.id
  from l
  cross join lateral (
    select f.lane, f.rank, f.id
    from span
    cross join lateral (
      select r.lane, r.rank, r.id from {schema}.ready as r
      where r.lane = l.lane and (r.rank, r.id) >= (span.rank, span.first)
        and (r.rank, r.id) < (span.end_rank, span.last)
        and ($6::text[] is null or (
          select b.task from {schema}.job as b where b.id = r.id
        ) = any($6::text[]))
      order by r.rank, r.id
      limit l.room + l.passed
      for update skip locked
    ) as f
    where span.n = l.n
    limit l.room offset l.passed
  ) as q
  where (select at from began) is not null and exists (
    select 1 from {schema}.worker as w
    where w.id = $1::int4 and not w.rescued and w.expires_at > coalesce(
      $8::float8, extract(epoch from clock_timestamp())::float8
    )
  )
  limit $5::int4
),
-- By key, and only what is still there: whoever holds the row's lock is the one to take it.
-- Sorted, so that all are chosen before the first one goes: a lane that comes again counts
-- those that its earlier turn has chosen. A join by `any(array[...])` can only be a probe.
d as (
  delete from {schema}.ready as r
  using (select c.lane, c.rank, c.id from c order by c.lane, c.rank, c.id) as c
  where r.lane = any(array[c.lane]) and r.rank = c.rank and r.id = c.id
  returning r.lane, r.id, r.claim_no
),
g as (
  update {schema}.queue as q set depth = q.depth - s.jobs
  from (select lane, count(*) as jobs from d group by lane) as s
  where q.name = any(array[s.lane]) and coalesce(q.hand_maxsize, q.maxsize) >= 0
),
n as (
  insert into {schema}.run (id, worker, claim_no, started_at)
  select d.id, $1::int4, d.claim_no + 1, t.now from d, t
  returning id, claim_no
),
got as materialized (
  select b.id, n.claim_no, b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost,
    b.snoozed, b.opts, b.parked_at, b.ukey, b.umode
  from n join {schema}.job as b on b.id = any(array[n.id])
)
-- Keys that hold only while waiting let go. What was due before this transaction began has been
-- made ready, or somebody holds it.
select null::uuid, null::int4, null::text, null::int2, null::text, null::bytea, null::int4,
  null::int4, null::int2, null::int4, null::bytea, null::float8,
  true, (select due.run_at - t.now from due, t), (
    select extract(epoch from clock_timestamp() - (select at from began))::float8
    from (select count(*) as jobs from c) as looked where looked.jobs >= 0
  ), null::int4[], null::float8,
  array(select ukey from got where umode = 0 order by id),
  array(select id from got where umode = 0 order by id),
  array(
    select head.lane from head
    where head.run_at <= coalesce($7::float8, extract(epoch from now())::float8)
  )
union all
select * from (
  select id, claim_no, lane, rank, task, payload, retried, losses, lost, snoozed, opts,
    parked_at, null::bool, null::float8, null::float8, null::int4[], null::float8, null::bytea[], null::uuid[], null::text[]
  from got
  order by rank, id
) as claims
