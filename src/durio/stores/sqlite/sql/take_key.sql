insert into uniq (key, id, mode, digest, until) values (?1, ?2, ?3, ?4, ?5)
on conflict (key) do update
set id = excluded.id, mode = excluded.mode, digest = excluded.digest, until = excluded.until
