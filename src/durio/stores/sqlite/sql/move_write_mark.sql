insert into doc (kind, name, body) values ('move', '', ?1)
on conflict (kind, name) do update set body = excluded.body
