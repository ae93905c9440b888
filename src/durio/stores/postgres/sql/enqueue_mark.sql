-- Stored by a repeat: should the first try still come, it finds this.
insert into {schema}.repeated (id, until)
select i.id, $2::float8 from unnest($1::uuid[]) i (id)
on conflict (id) do nothing
