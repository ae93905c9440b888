-- Counters at zero, the fence as it was; $2 are other arguments, if there are any. They
-- could have run since now ($3), however old they are.
with back as (
  delete from {schema}.kept where id = any($1::uuid[]) returning *
),
begun as (
  insert into {schema}.job (
    id, lane, rank, task, payload, run_at, ukey, umode, opts, errors, created_at
  )
  select id, lane, rank, task, coalesce($2::bytea, payload), $3::float8, ukey, umode, opts,
    errors, created_at
  from back
  on conflict (id) do nothing
  returning id
)
insert into {schema}.ready (lane, rank, id, claim_no)
-- `is true` keeps the planner from a join, which here would be a loop in a loop.
select lane, rank, id, claim_no from back where (id in (select id from begun)) is true
returning lane
