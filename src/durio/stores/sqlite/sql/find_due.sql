select run_at, seq, queue from job
where state = 0 and queue = ?1 and run_at <= ?2
order by run_at limit ?3
