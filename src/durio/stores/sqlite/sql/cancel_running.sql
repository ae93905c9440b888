update job set cancel = 1 where id = ?1 and state = 3 returning worker
