select id from worker where has_life and boot = ?1 and (?2 is null or namespace = ?2) order by id
