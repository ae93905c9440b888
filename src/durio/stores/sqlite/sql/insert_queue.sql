insert into queue (name) values (?1) on conflict (name) do nothing
