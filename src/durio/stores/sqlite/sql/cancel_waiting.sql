update job set state = 6, finished_at = ?2, gone_at = ?3
where id = ?1 and state < 3
returning ukey, opts, queue
