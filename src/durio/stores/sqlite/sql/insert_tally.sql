insert into tally (queue, task, error_type, dead) values (?1, ?2, ?3, 1)
