-- The newest job of a bucket says how many stay. One that answers for a key stays too, as
-- long as that key's window.
delete from job
where seq in (
  select seq from job
  where bucket = ?1
  order by finished_at desc, seq desc limit ?2
  offset (
    select keep_count from job
    where bucket = ?1
    order by finished_at desc, seq desc limit 1
  )
)
and not exists (
  select 1 from uniq where key = job.ukey and uniq.id = job.id and until > ?3
)
returning 1
