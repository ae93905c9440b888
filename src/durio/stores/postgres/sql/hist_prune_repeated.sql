-- Enqueues that were sent twice, long ago: no first try is on its way any more.
delete from {schema}.repeated
where id = any(array(
  select r.id from {schema}.repeated as r
  where r.until <= $1::float8
  order by r.id
  limit $2::int4
  for update skip locked
))
