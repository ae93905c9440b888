-- Only the holder lets go: a successor may own the key by now.
delete from {schema}.uniq u
using unnest($1::bytea[], $2::uuid[]) k (key, id)
where u.key = k.key and u.id = k.id
