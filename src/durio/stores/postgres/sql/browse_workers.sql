-- $2 is a test's time; without it the server's counts.
select w.id, w.info,
  w.expires_at - coalesce($2::float8, extract(epoch from clock_timestamp())::float8),
  (select count(*) from {schema}.run as r where r.worker = w.id), w.vitals
from {schema}.worker as w
where $1::text is null or w.namespace = $1::text
order by w.id
