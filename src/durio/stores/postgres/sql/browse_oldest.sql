-- By jumps from lane to lane, and in each to the first few of every priority.
with recursive lane (name) as (
  (
    select lane from {schema}.ready
    where lane >= $1::text and lane < $2::text order by lane limit 1
  )
  union all
  select (
    select r.lane from {schema}.ready as r
    where r.lane > lane.name and r.lane < $2::text order by r.lane limit 1
  )
  from lane where lane.name is not null
)
select lane.name, min(first.since)
from lane
cross join generate_series(0, 9) as level (rank)
cross join lateral (
  select greatest(j.created_at, j.run_at) as since
  from (
    select id from {schema}.ready as r
    where r.lane = lane.name and r.rank = level.rank order by r.id limit 10
  ) as next
  join {schema}.job as j on j.id = any(array[next.id])
) as first
where lane.name is not null
group by lane.name
