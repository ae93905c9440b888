-- Counters at zero, the fence as it was; ?2 are other arguments, if there are any. It could
-- have run since now (?3), however old it is.
update job
set state = 2, retried = 0, losses = 0, lost = 0, snoozed = 0, cancel = 0, alone = 0,
  worker = null, parked_at = null, run_at = ?3, started_at = null, finished_at = null,
  died_at = null, died_no = null, gone_at = null, progress = null, reason = null,
  bucket = null, keep_count = null, payload = coalesce(?2, payload)
where id = ?1 and state in (5, 6)
returning queue
