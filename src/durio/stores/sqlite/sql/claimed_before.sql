select id, claim_no, queue, rank, task, payload, retried, losses, lost, snoozed, opts,
  coalesce(due_at, created_at)
from job
where state = 3 and worker = ?1
order by rank, seq
