select id, info, boot, expires_at,
  (select count(*) from job where state = 3 and worker = worker.id), vitals
from worker
where ?1 is null or namespace = ?1
order by id
