-- All that runs under this worker: the reply that brought it was lost.
-- A join by `any(array[...])` can only be a probe.
select b.id, r.claim_no, b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost,
  b.snoozed, b.opts, b.parked_at
from {schema}.run as r join {schema}.job as b on b.id = any(array[r.id])
where r.worker = $1::int4
order by b.rank, b.id
