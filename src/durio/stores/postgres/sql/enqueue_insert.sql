-- New jobs, with or without a key, and the lanes that nobody has used before. A job that
-- somebody has stored meanwhile is left alone: the caller counts.
with i as materialized (
  select *
  from unnest(
    $1::uuid[], $2::text[], $3::int2[], $4::text[], $5::bytea[], $6::float8[], $7::bytea[],
    $8::bytea[], $9::int2[]
  ) u (id, lane, rank, task, payload, run_at, opts, ukey, umode)
),
q as (
  insert into {schema}.queue (name)
  select n.name from unnest($11::text[]) n (name) order by n.name
  on conflict (name) do nothing
),
j as (
  insert into {schema}.job (
    id, lane, rank, task, payload, run_at, opts, ukey, umode, created_at
  )
  select i.id, i.lane, i.rank, i.task, i.payload, i.run_at, i.opts, i.ukey, i.umode,
    $10::float8
  from i order by i.id
  on conflict (id) do nothing
  returning id, lane, rank, run_at
),
s as (
  insert into {schema}.sched (lane, run_at, id)
  select j.lane, j.run_at, j.id from j where j.run_at > $10::float8
),
r as (
  insert into {schema}.ready (lane, rank, id)
  select j.lane, j.rank, j.id from j where j.run_at is null or j.run_at <= $10::float8
)
select count(*) from j
