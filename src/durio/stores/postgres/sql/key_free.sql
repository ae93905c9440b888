-- Only the holder lets go: a successor may own the key by now. A job has one key, so its id
-- among the ids is enough. Locked in one order for everybody.
with freed as materialized (
  select u.key from {schema}.uniq as u
  where u.key = any($1::bytea[]) and u.id = any($2::uuid[])
  order by u.key
  for update
)
delete from {schema}.uniq as u where u.key = any(array(select f.key from freed as f))
