insert into {schema}.queue (name)
select name from unnest($1::text[]) as u (name) order by name
on conflict (name) do nothing
