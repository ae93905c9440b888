-- By jumps from lane to lane, and in each to the first few of every priority.
with recursive
  lane (name) as (
    select min(queue) from job where state = 2 and queue >= ?1 and queue < ?2
    union all
    select (select min(queue) from job where state = 2 and queue > lane.name and queue < ?2)
    from lane where lane.name is not null
  ),
  level (rank) as (select 0 union all select rank + 1 from level where rank < 9)
select lane.name, min((
  select min(since) from (
    select max(created_at, coalesce(run_at, created_at)) as since from job
    where state = 2 and queue = lane.name and job.rank = level.rank
    order by seq limit 10
  )
))
from lane, level
where lane.name is not null
group by lane.name
