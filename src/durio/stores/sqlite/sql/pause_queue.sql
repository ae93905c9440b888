insert into queue (name, paused) values (?1, ?2)
on conflict (name) do update set paused = excluded.paused
