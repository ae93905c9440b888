insert into doc (kind, name, body) values (?1, ?2, ?3)
on conflict (kind, name) do update set body = excluded.body where body <> excluded.body
