-- Leave or take marks, unless the queue has got a bound meanwhile.
-- A join by `any(array[...])` can only be a probe.
with l as materialized (
  select q.name from {schema}.queue q where q.name = any($1::text[])
  order by q.name for no key update
)
update {schema}.queue q
set is_over = c.mark, depth = c.depth
from l join unnest($1::text[], $2::int8[], $3::int8[]) c (lane, mark, depth) on c.lane = l.name
where q.name = any(array[l.name]) and coalesce(q.hand_maxsize, q.maxsize, -1) < 0
