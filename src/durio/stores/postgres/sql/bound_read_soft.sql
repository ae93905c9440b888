-- Queues of a span without a bound of their own, and the mark that they carry. Where a hand
-- has said that there is none, the soft one does not hold either.
select q.name, q.is_over from {schema}.queue q
where q.name >= $1::text and q.name < $2::text
  and q.hand_maxsize is null and q.maxsize is null
