insert into tally (queue, task, error_type, dead) values ('', '', '', 1)
on conflict (queue, task, error_type) do update set dead = dead + 1
returning dead
