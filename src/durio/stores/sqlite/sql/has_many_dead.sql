select 1 from job indexed by job_dead where died_at is not null limit 1 offset ?1
