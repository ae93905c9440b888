-- What is due in these lanes becomes ready, $3 jobs of each at most. $4 for each lane: since
-- how many seconds, at most.
-- A join by `any(array[...])` can only be a probe.
with
t as materialized (
  select coalesce($2::float8, extract(epoch from clock_timestamp())::float8) as now
),
c as materialized (
  select s.lane, s.run_at, s.id
  from t cross join unnest($1::text[], $4::float8[]) as l (lane, age)
  cross join lateral (
    select d.lane, d.run_at, d.id from {schema}.sched as d
    where d.lane = l.lane and d.run_at between t.now - l.age and t.now
    order by d.run_at, d.id
    limit $3::int4
    for update skip locked
  ) as s
),
d as (
  delete from {schema}.sched as s using c
  where s.lane = any(array[c.lane]) and s.run_at = c.run_at and s.id = c.id
  returning s.id, s.claim_no
),
p as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select b.lane, b.rank, b.id, d.claim_no
  from d join {schema}.job as b on b.id = any(array[d.id])
  returning lane, rank, id
)
select lane, rank, min(id::text)::uuid, count(*)::int4 from p group by lane, rank
