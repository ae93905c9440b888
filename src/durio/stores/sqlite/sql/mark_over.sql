update queue set is_over = ?2, depth = ?3 where name = ?1
