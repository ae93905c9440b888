select r.id, r.claim_no, b.retried, b.losses, r.worker
from {schema}.run as r join {schema}.job as b on b.id = r.id
where r.id = any($1::uuid[])
  and not exists (select 1 from {schema}.worker as w where w.id = r.worker)
order by r.id
for update of r skip locked
