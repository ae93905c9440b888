insert into {schema}.doc as d (kind, name, body)
select kind, name, body from unnest($1::text[], $2::text[], $3::text[]) as u (kind, name, body)
on conflict (kind, name) do update set body = excluded.body where d.body <> excluded.body
