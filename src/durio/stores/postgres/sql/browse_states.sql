-- The states of jobs, and how to find the lane rows of those that wait.
with live as materialized (
  select j.id,
    case when r.id is not null then 3 when s.id is not null then 0 else 2 end as state,
    j.lane, j.rank, j.run_at
  from {schema}.job as j
  left join {schema}.run as r on r.id = j.id
  left join {schema}.sched as s on s.lane = j.lane and s.run_at = j.run_at and s.id = j.id
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
