-- As enqueue_ready, for jobs that differ in nothing but their arguments: `enqueue_many`.
with g as materialized (
  select exists (
    select 1 from {schema}.queue q
    where q.name = any($7::text[])
      and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  ) or (
    exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated p where p.id = any($1::uuid[]))
  ) as halts
),
i as materialized (
  select u.id, u.payload from g, unnest($1::uuid[], $5::bytea[]) u (id, payload)
  where not g.halts
),
q as (
  insert into {schema}.queue (name)
  select n.name from g, unnest($8::text[]) n (name) where not g.halts order by n.name
  on conflict (name) do nothing
),
j as (
  insert into {schema}.job (id, lane, rank, task, payload, opts, created_at)
  select i.id, $2::text, $3::int2, $4::text, i.payload, $6::bytea, t.now
  from (select coalesce($9::float8, extract(epoch from clock_timestamp())::float8) as now) t, i
  returning 1
),
r as (
  insert into {schema}.ready (lane, rank, id) select $2::text, $3::int2, i.id from i
)
select case when (select count(*) from j) > 0 then not {schema}.check_first($1::uuid[])
  else g.halts end
from g
