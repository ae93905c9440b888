-- Counters at zero, the fence as it was.
update job
set state = 2, retried = 0, losses = 0, lost = 0, snoozed = 0, cancel = 0, alone = 0,
  worker = null, parked_at = null, run_at = null, started_at = null, finished_at = null, died_at = null, gone_at = null,
  progress = null, reason = null, bucket = null, keep_count = null
where id = ?1 and state in (5, 6)
returning queue
