select id, claim_no, retried, losses, worker from job
where state = 3 and not exists (select 1 from worker where worker.id = job.worker)
  and (?2 is null or queue between ?2 || ':' and ?2 || ';')
limit ?1
