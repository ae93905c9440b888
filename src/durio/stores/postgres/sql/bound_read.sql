select q.name, q.maxsize, q.is_default,
  q.is_over < 0 and coalesce(q.hand_maxsize, q.maxsize) >= 0
from {schema}.queue q where q.name = any($1::text[])
