-- Progress, and the mark of a job that is about to run alone; what the fence lets through.
-- A join by `any(array[...])` can only be a probe.
update {schema}.run as r
set progress = coalesce(u.progress, r.progress), alone = r.alone or u.alone
from unnest($1::uuid[], $2::int4[], $3::bytea[], $4::bool[])
  as u (id, claim_no, progress, alone)
where r.id = any(array[u.id]) and r.claim_no = u.claim_no and r.worker + 0 = $5::int4
returning r.id, r.claim_no
