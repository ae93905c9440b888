-- The newest job of a bucket says how many stay. One that answers for a key stays too, as
-- long as that key's window. Only what goes is locked, and it is looked for by id: a join by
-- `any(array[...])` can only be a probe, and `coalesce` keeps the other indexes away.
with old as materialized (
  select o.id from {schema}.kept as o
  where o.bucket = $1::text
  order by o.finished_at desc, o.id desc
  limit $2::int4
  offset (
    select n.keep_count from {schema}.kept as n
    where n.bucket = $1::text
    order by n.finished_at desc, n.id desc limit 1
  )
)
delete from {schema}.kept
where id = any(array(
  select k.id from old join {schema}.kept as k on k.id = any(array[old.id])
  where coalesce(k.bucket, '') = $1::text and (
    select 1 from {schema}.uniq as u
    where u.key = k.ukey and u.id = k.id and coalesce(u.until, 0) > $3::float8
  ) is null
  for update of k skip locked
))
returning 1
