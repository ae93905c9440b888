-- The guards of these lanes, if they have any; locked by name, before all other locks. The
-- last column: somebody's transaction has brought jobs that are not counted yet.
select q.name, nullif(coalesce(q.hand_maxsize, q.maxsize), -1), q.depth,
  greatest(q.is_over, 0), q.closed,
  exists (select 1 from {schema}.entered as e where e.lane = q.name)
from {schema}.queue q
where q.name = any($1::text[])
  and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
order by q.name
for no key update
