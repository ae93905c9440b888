-- What a lane gives next, as claims. `claim_ready` then takes these very jobs: between the
-- two nobody else can write. Two plain statements are quicker than one with RETURNING.
select id, claim_no + 1, queue, rank, task, payload, retried, losses, lost, snoozed, opts,
  parked_at, ukey, umode
from job
where state = 2 and queue = ?1
  and not exists (select 1 from queue where name = ?1 and paused)
order by rank, seq limit ?2
