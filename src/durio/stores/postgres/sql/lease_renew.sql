-- Never inserts: a rescued worker stays dead. The answer brings the running jobs that somebody
-- wants cancelled, and the lanes of its namespace that give nothing.
update {schema}.worker as w
set vitals = coalesce($4::text, w.vitals), expires_at = $2::float8 + coalesce(
  $3::float8, extract(epoch from clock_timestamp())::float8
)
where w.id = $1::int4 and not w.rescued
returning
  array(select r.id from {schema}.run as r where r.worker = w.id and r.cancel order by r.id),
  array(
    select r.claim_no from {schema}.run as r where r.worker = w.id and r.cancel order by r.id
  ),
  array(
    select q.name from {schema}.queue as q
    where q.paused and starts_with(q.name, w.namespace || ':')
  )
