-- Queues of a span whose bound was committed by somebody who has not counted again since.
select q.name from {schema}.queue q
where (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  and q.is_over < 0 and coalesce(q.hand_maxsize, q.maxsize) >= 0
  and q.name >= $1::text and q.name < $2::text
