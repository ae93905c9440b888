update {schema}.queue q set is_over = 0
where q.name = any($1::text[]) and q.is_over <> 0
  and coalesce(q.hand_maxsize, q.maxsize, -1) < 0
