-- Lanes of a span with jobs that wait: by jumps from lane to lane through the indexes, so
-- that queues nobody uses any more cost nothing.
with recursive
  ready (name) as (
    select min(queue) from job where state = 2 and queue >= ?1 and queue < ?2
    union all
    select (select min(queue) from job where state = 2 and queue > ready.name and queue < ?2)
    from ready where ready.name is not null
  ),
  scheduled (name) as (
    select min(queue) from job where state = 0 and queue >= ?1 and queue < ?2
    union all
    select (
      select min(queue) from job where state = 0 and queue > scheduled.name and queue < ?2
    )
    from scheduled where scheduled.name is not null
  )
select name, paused, closed, maxsize, hand_maxsize, is_over from queue
where name in (select name from ready union select name from scheduled)
order by name
