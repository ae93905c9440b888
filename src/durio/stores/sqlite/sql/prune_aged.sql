-- Dead jobs have a rule of their own.
delete from job
where seq in (
  select seq from job
  where state >= 4 and state <> 5 and gone_at <= ?1
  order by gone_at limit ?2
)
returning 1
