-- Take keys that are free and lock those that are held, in one order for everybody. `where
-- false` writes nothing: such a row is locked, and not returned.
insert into {schema}.uniq as u (key, id, mode, digest, until)
select k.key, k.id, k.mode, k.digest, k.until
from unnest($1::bytea[], $2::uuid[], $3::int2[], $4::bytea[], $5::float8[])
  k (key, id, mode, digest, until)
order by k.key
on conflict (key) do update set mode = u.mode where false
returning u.key
