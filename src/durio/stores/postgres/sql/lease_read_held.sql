-- Whoever finishes one of them at this moment is waited for.
-- A join by `any(array[...])` can only be a probe.
select r.id, r.claim_no, b.retried, b.losses, r.worker
from {schema}.run as r join {schema}.job as b on b.id = any(array[r.id])
where r.worker + 0 = any($1::int4[]) and r.id = any($2::uuid[])
order by r.id
for update of r
