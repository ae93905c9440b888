-- Their queues are locked by now, those that have a bound; others are not counted.
with d as (
  delete from {schema}.entered e where e.lane = any($1::text[]) returning e.lane, e.jobs
),
s as materialized (select d.lane, sum(d.jobs)::int8 as jobs from d group by d.lane)
update {schema}.queue q set depth = q.depth + s.jobs
from s
where q.name = s.lane and coalesce(q.hand_maxsize, q.maxsize) >= 0
returning q.name, q.depth
