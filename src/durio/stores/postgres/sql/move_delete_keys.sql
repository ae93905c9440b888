-- A join by `any(array[...])` can only be a probe.
delete from {schema}.uniq as q
using unnest($1::bytea[], $2::uuid[]) as u (key, id)
where q.key = any(array[u.key]) and q.id = u.id
