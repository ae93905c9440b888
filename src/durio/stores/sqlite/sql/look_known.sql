-- `look_ready` for a worker that met a task it does not know: ?3 is a JSON list of those
-- it does.
select id, claim_no + 1, queue, rank, task, payload, retried, losses, lost, snoozed, opts,
  parked_at, ukey, umode
from job
where state = 2 and queue = ?1
  and not exists (select 1 from queue where name = ?1 and paused)
  and task in (select value from json_each(?3))
order by rank, seq limit ?2
