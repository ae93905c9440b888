-- Waiting jobs of a queue that somebody holds, as far as $2 rows say.
with r as materialized (
  select 1 from {schema}.ready where lane = $1::text order by rank, id limit $2::int4
),
fr as materialized (
  select 1 from {schema}.ready where lane = $1::text order by rank, id limit $2::int4
  for update skip locked
),
s as materialized (
  select 1 from {schema}.sched where lane = $1::text order by run_at, id limit $2::int4
),
fs as materialized (
  select 1 from {schema}.sched where lane = $1::text order by run_at, id limit $2::int4
  for update skip locked
)
select (select count(*) from r) - (select count(*) from fr)
  + (select count(*) from s) - (select count(*) from fs)
