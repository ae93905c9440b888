-- Seconds until the next job is due, wherever: each lane's first is at the head of its index.
-- $1 now  $2 as $3 of `upkeep_promote`
with recursive
t as materialized (
  select coalesce($1::float8, extract(epoch from clock_timestamp())::float8) as now
),
lane (name) as (
  (select s.lane from {schema}.sched as s order by s.lane limit 1)
  union all
  select (
    select s.lane from {schema}.sched as s where s.lane > lane.name order by s.lane limit 1
  )
  from lane where lane.name is not null
)
select min((
  select s.run_at from {schema}.sched as s
  where s.lane = lane.name and s.run_at >= (select now - $2::float8 from t)
  order by s.run_at limit 1
)) - (select now from t)
from lane
