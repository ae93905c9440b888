-- The states of jobs, and how to find the lane rows of those that wait. `offset 0`: one look
-- for each job, and no join, which may walk through a whole table.
with live as materialized (
  select j.id,
    case when r.id is not null then 3 when s.id is not null then 0 else 2 end as state,
    j.lane, j.rank, j.run_at
  from {schema}.job as j
  left join lateral (
    select r.id from {schema}.run as r where r.id = j.id offset 0
  ) as r on true
  left join lateral (
    select s.id from {schema}.sched as s
    where s.lane = j.lane and s.run_at = j.run_at and s.id = j.id
    offset 0
  ) as s on true
  where j.id = any($1::uuid[])
),
kept as materialized (
  select id, state, lane from {schema}.kept
  where id = any(array(
    select id from unnest($1::uuid[]) as u (id) where id not in (select id from live)
  ))
)
select id, state, lane, rank, run_at from live
union all
select id, state, lane, null::int2, null::float8 from kept
union all
select id, state, lane, null::int2, null::float8 from {schema}.hist
where id = any(array(
  select id from unnest($1::uuid[]) as u (id)
  where id not in (select id from live) and id not in (select id from kept)
))
