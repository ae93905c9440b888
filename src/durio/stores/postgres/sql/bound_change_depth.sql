-- Only a queue with a bound of its own counts.
update {schema}.queue q
set depth = q.depth + c.jobs
from unnest($1::text[], $2::int8[]) c (lane, jobs)
where q.name = c.lane and coalesce(q.hand_maxsize, q.maxsize) >= 0
