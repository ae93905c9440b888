select 1 from job indexed by job_ready where state = 2 limit 1 offset ?1
