-- Queues without a bound of their own, and the mark that they carry.
select name, is_over from queue
where (hand_maxsize is null and maxsize is null) or hand_maxsize < 0
