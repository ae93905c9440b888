-- Past their age, and not among the newest ?3.
delete from job
where seq in (
  select seq from job
  where died_at is not null and gone_at <= ?1 and (
    ?3 = 0
    or died_at < (
      select died_at from job where died_at is not null
      order by died_at desc limit 1 offset ?3 - 1
    )
  )
  order by died_at limit ?2
)
returning 1
