-- The first ?2 of a lane, of those that are ready and of those that are not due.
select task, count(*) from (
  select task from (
    select task from job where state = 2 and queue = ?1 order by rank, seq limit ?2
  )
  union all
  select task from (
    select task from job where state = 0 and queue = ?1 order by run_at limit ?2
  )
)
group by task
