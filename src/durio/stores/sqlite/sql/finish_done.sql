update job
set state = 4, worker = null, finished_at = ?4, result = ?5, result_until = ?6,
  gone_at = ?7, bucket = ?8, keep_count = ?9
where id = ?1 and claim_no = ?2 and worker = ?3 and state = 3
returning id, ukey, umode
