delete from {schema}.command
where id = any(array(
  select id from {schema}.command where asked_at <= $1::float8
  order by id limit $2::int8
  for update skip locked
))
