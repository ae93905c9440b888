select id, claim_no, retried, losses, worker from job
where state = 3 and not exists (select 1 from worker where worker.id = job.worker)
limit ?1
