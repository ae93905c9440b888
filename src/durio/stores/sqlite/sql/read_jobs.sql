select id, queue, rank, state, task, payload, retried, losses, lost, snoozed, claim_no,
  worker, opts, cast(errors as blob), progress, cancel, created_at, run_at, started_at,
  finished_at, result, result_until, reason, ukey, seq
from job
