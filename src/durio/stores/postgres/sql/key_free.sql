-- Only the holder lets go: a successor may own the key by now. A job has one key, so its id
-- among the ids is enough. One that somebody asks for right now is left: that may be a
-- transaction which lasts. Its holder is over, and does not answer for it (admission.py).
with freed as materialized (
  select u.key from {schema}.uniq as u
  where u.key = any($1::bytea[]) and u.id = any($2::uuid[])
  for update skip locked
)
delete from {schema}.uniq as u where u.key = any(array(select f.key from freed as f))
