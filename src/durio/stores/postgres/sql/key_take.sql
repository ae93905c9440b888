-- Whoever held these keys before: their rows are locked.
-- A join by `any(array[...])` can only be a probe.
update {schema}.uniq u
set id = k.id, mode = k.mode, digest = k.digest, until = k.until
from unnest($1::bytea[], $2::uuid[], $3::int2[], $4::bytea[], $5::float8[])
  k (key, id, mode, digest, until)
where u.key = any(array[k.key])
