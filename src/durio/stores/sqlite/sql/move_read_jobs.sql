select seq, id, queue, rank, state, task, payload, retried, losses, lost, snoozed, claim_no,
  run_at, parked_at, started_at, ukey, umode, opts, cast(errors as blob), progress,
  created_at, finished_at, gone_at, result, result_until, reason, bucket, keep_count, died_no
from job where seq > ?1 and seq <= ?2 order by seq
