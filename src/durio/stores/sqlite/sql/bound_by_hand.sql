insert into queue (name, hand_maxsize) values (?1, ?2)
on conflict (name) do update set hand_maxsize = excluded.hand_maxsize
