-- What workers have said here is younger.
insert into {schema}.doc (kind, name, body)
select kind, name, body from unnest($1::text[], $2::text[], $3::text[]) as u (kind, name, body)
on conflict (kind, name) do nothing
