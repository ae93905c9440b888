update job set state = 2 where seq = ?1 and state = 0
