-- Queues of a span without a bound of their own, and the mark that they carry. Where a hand
-- has said that there is none, the soft one does not hold either.
select name, is_over from queue
where name >= ?1 and name < ?2 and hand_maxsize is null and maxsize is null
