select id from worker where has_life and boot = ?1 order by id
