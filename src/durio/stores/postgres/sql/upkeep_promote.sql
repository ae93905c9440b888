-- The $1 oldest of all due jobs: by jumps from lane to lane, and in each from its first on that
-- has been due for $3 seconds at most.
-- A join by `any(array[...])` can only be a probe.
with recursive
t as materialized (
  select coalesce($2::float8, extract(epoch from clock_timestamp())::float8) as now
),
lane (name) as (
  (select s.lane from {schema}.sched as s order by s.lane limit 1)
  union all
  select (
    select s.lane from {schema}.sched as s where s.lane > lane.name order by s.lane limit 1
  )
  from lane where lane.name is not null
),
c as materialized (
  select d.lane, d.run_at, d.id
  from lane
  cross join lateral (
    select s.lane, s.run_at, s.id from {schema}.sched as s
    where s.lane = lane.name
      and s.run_at between (select now - $3::float8 from t) and (select now from t)
    order by s.run_at, s.id
    limit $1::int4
    for update skip locked
  ) as d
  order by d.run_at, d.id
  limit $1::int4
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
