select uniq.id, job.state, uniq.until, uniq.digest, job.created_at, job.queue
from uniq left join job on job.id = uniq.id
where uniq.key = ?1
