-- Lanes of a span with jobs that wait: by jumps from lane to lane through the indexes, so
-- that queues nobody uses any more cost nothing.
with recursive
  ready (name) as (
    (
      select lane from {schema}.ready
      where lane >= $1::text and lane < $2::text order by lane limit 1
    )
    union all
    select (
      select r.lane from {schema}.ready as r
      where r.lane > ready.name and r.lane < $2::text order by r.lane limit 1
    )
    from ready where ready.name is not null
  ),
  sched (name) as (
    (
      select lane from {schema}.sched
      where lane >= $1::text and lane < $2::text order by lane limit 1
    )
    union all
    select (
      select s.lane from {schema}.sched as s
      where s.lane > sched.name and s.lane < $2::text order by s.lane limit 1
    )
    from sched where sched.name is not null
  )
select name, paused, closed, maxsize, hand_maxsize, is_over from {schema}.queue
where name = any(array(
  select name from ready where name is not null
  union
  select name from sched where name is not null
))
order by name
