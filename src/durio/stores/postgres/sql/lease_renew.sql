-- Never inserts: a rescued worker stays dead. The answer brings the running jobs that somebody
-- wants cancelled, and the lanes of its namespace that give nothing. `offset 0`: first the
-- worker's own jobs, then in order. Not by a walk through everybody's in order.
update {schema}.worker as w
set vitals = coalesce($4::text, w.vitals), expires_at = $2::float8 + coalesce(
  $3::float8, extract(epoch from clock_timestamp())::float8
)
where w.id = $1::int4 and not w.rescued
returning
  array(
    select c.id from (
      select r.id from {schema}.run as r where r.worker = w.id and r.cancel offset 0
    ) as c order by c.id
  ),
  array(
    select c.claim_no from (
      select r.id, r.claim_no from {schema}.run as r
      where r.worker = w.id and r.cancel offset 0
    ) as c order by c.id
  ),
  array(
    select q.name from {schema}.queue as q
    where q.paused and starts_with(q.name, w.namespace || ':')
  )
