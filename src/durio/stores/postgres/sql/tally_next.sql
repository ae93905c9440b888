-- The row without names counts all deaths; locked till the end of the transaction.
insert into {schema}.tally as t (lane, task, error_type, dead)
values ('', '', '', $1::int8)
on conflict (lane, task, error_type) do update set dead = t.dead + excluded.dead
returning dead
