select namespace from worker where id = ?1
