-- Only a queue with a bound of its own counts. `any(array[...])`: a join by probes.
update {schema}.queue q
set depth = q.depth + c.jobs
from unnest($1::text[], $2::int8[]) c (lane, jobs)
where q.name = any(array[c.lane]) and coalesce(q.hand_maxsize, q.maxsize) >= 0
