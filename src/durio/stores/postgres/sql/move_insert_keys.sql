insert into {schema}.uniq (key, id, mode, digest, until)
select key, id, mode, digest, until
from unnest($1::bytea[], $2::uuid[], $3::int2[], $4::bytea[], $5::float8[])
  as u (key, id, mode, digest, until)
order by key
on conflict (key) do nothing
