-- As bound_lock, without a lock.
select q.name, nullif(coalesce(q.hand_maxsize, q.maxsize), -1), q.depth + coalesce((
    select sum(e.jobs)::int8 from {schema}.entered as e where e.lane = q.name
  ), 0), greatest(q.is_over, 0), q.closed
from {schema}.queue q
where q.name = any($1::text[])
  and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
