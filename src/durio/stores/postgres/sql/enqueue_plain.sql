-- Jobs without a key: one statement, one round trip. It writes nothing, and says so, where a
-- queue of theirs is guarded, or where a repeat of this very call came first. A repeat that
-- came while it stood still is seen after the insert, and undoes it: `check_first` raises.
with t as materialized (
  select coalesce($10::float8, extract(epoch from clock_timestamp())::float8) as now
),
g as materialized (
  select exists (
    select 1 from {schema}.queue q
    where q.name = any($8::text[])
      and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  ) or (
    exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated p where p.id = any($1::uuid[]))
  ) as halts
),
i as materialized (
  select u.id, u.lane, u.rank, u.task, u.payload, u.opts, t.now,
    case when u.run_at is not null then u.run_at
      when u.delay > 0 then t.now + u.delay end as run_at
  from t, g, unnest(
    $1::uuid[], $2::text[], $3::int2[], $4::text[], $5::bytea[], $6::float8[], $7::float8[],
    $11::bytea[]
  ) u (id, lane, rank, task, payload, run_at, delay, opts)
  where not g.halts
),
q as (
  insert into {schema}.queue (name)
  select n.name from g, unnest($9::text[]) n (name) where not g.halts order by n.name
  on conflict (name) do nothing
),
j as (
  insert into {schema}.job (id, lane, rank, task, payload, run_at, opts, created_at)
  select i.id, i.lane, i.rank, i.task, i.payload, i.run_at, i.opts, i.now from i
  returning 1
),
s as (
  insert into {schema}.sched (lane, run_at, id)
  select i.lane, i.run_at, i.id from i where i.run_at > i.now
),
r as (
  insert into {schema}.ready (lane, rank, id)
  select i.lane, i.rank, i.id from i where i.run_at is null or i.run_at <= i.now
)
select case when (select count(*) from j) > 0 then not {schema}.check_first($1::uuid[])
  else g.halts end, t.now
from g, t
