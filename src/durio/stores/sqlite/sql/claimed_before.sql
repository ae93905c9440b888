select id, claim_no, queue, rank, task, payload, retried, losses, lost, snoozed, opts,
  parked_at
from job
where state = 3 and worker = ?1
order by rank, seq
