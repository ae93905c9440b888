select
  case when hand_maxsize is null then maxsize when hand_maxsize >= 0 then hand_maxsize end,
  depth, is_over, closed
from queue
where name = ?1 and (maxsize is not null or hand_maxsize is not null or is_over or closed)
