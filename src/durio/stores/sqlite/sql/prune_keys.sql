-- A window lasts at least until its job is final.
delete from uniq
where key in (
  select key from uniq
  where until <= ?1
    and not exists (select 1 from job where job.id = uniq.id and job.state < 4)
  order by until limit ?2
)
returning 1
