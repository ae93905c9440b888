select 1 from job indexed by job_running where state = 3 limit 1 offset ?1
