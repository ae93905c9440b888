update worker set rescued = 1 where id = ?1
