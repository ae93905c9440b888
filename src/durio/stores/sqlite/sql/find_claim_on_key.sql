-- The key that a final job came with, and whether a job that answers for it now is another.
select ukey, umode, payload,
  exists (
    select 1 from uniq join job as holder on holder.id = uniq.id
    where uniq.key = job.ukey and uniq.id <> job.id and (holder.state < 4 or uniq.until > ?2)
  )
from job
where id = ?1 and ukey is not null and state in (5, 6)
