insert into queue (name, maxsize, is_default) values (?1, ?2, ?3)
on conflict (name) do update set maxsize = excluded.maxsize, is_default = excluded.is_default
