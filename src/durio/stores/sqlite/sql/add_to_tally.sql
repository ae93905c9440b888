update tally set dead = dead + 1 where queue = ?1 and task = ?2 and error_type = ?3
returning dead
