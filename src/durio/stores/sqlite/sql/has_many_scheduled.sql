select 1 from job indexed by job_scheduled where state = 0 limit 1 offset ?1
