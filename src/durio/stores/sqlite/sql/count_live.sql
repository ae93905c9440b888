-- Index entries alone, but for running jobs, of which there are few.
select queue, 2, count(*) from job
where state = 2 and queue >= ?1 and queue < ?2 group by queue
union all
select queue, 0, count(*) from job
where state = 0 and queue >= ?1 and queue < ?2 group by queue
union all
select queue, 3, count(*) from job indexed by job_running
where state = 3 and queue >= ?1 and queue < ?2 group by queue
union all
select queue, 5, count(*) from job indexed by job_dead
where died_at is not null and queue >= ?1 and queue < ?2 group by queue
