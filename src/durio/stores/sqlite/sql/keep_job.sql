update job set gone_at = ?2, bucket = ?3, keep_count = ?4 where id = ?1
