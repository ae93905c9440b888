-- A join by `any(array[...])` can only be a probe, and so is a value that is null.
select r.id, r.claim_no, b.retried, b.losses, r.worker
from {schema}.run as r join {schema}.job as b on b.id = any(array[r.id])
where r.id = any($1::uuid[])
  and (select 1 from {schema}.worker as w where w.id = r.worker) is null
order by r.id
for update of r skip locked
