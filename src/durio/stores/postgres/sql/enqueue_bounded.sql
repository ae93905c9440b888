-- As enqueue_plain, where queues may be guarded. Where there is room for all jobs they are
-- counted, under the locks of these queues. Where there is not nothing is written, and it
-- says which queue is full. That is mostly seen without a lock: a full queue is asked again
-- and again, and must not keep its workers waiting. Nor is anything written, or said, where
-- jobs are not counted yet.
-- A join by `any(array[...])` can only be a probe.
with t as materialized (
  select coalesce($10::float8, extract(epoch from clock_timestamp())::float8) as now
),
c as materialized (
  select u.lane, count(*) as jobs from unnest($2::text[]) u (lane) group by u.lane
),
n as materialized (
  select not exists (
    select 1 from {schema}.entered o where o.lane = any($8::text[])
  ) as is_counted
),
p as materialized (
  select q.name, nullif(coalesce(q.hand_maxsize, q.maxsize), -1) as bound, q.depth,
    q.is_over, q.closed, c.jobs
  from {schema}.queue q join c on c.lane = q.name
  where q.name = any($8::text[])
    and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
),
e as materialized (
  select p.* from n, p
  where n.is_counted and (p.closed or p.depth + p.jobs > p.bound or (p.bound is null and p.is_over > 0))
  order by p.name limit 1
),
b as materialized (
  select q.name, nullif(coalesce(q.hand_maxsize, q.maxsize), -1) as bound, q.depth,
    q.is_over, q.closed, c.jobs
  from {schema}.queue q join c on c.lane = q.name
  where q.name = any($8::text[]) and not exists (select 1 from e)
    and (select n.is_counted from n)
    and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  order by q.name
  for no key update of q
),
f as materialized (
  select e.* from e
  union all
  select b.* from b
  where b.closed or b.depth + b.jobs > b.bound or (b.bound is null and b.is_over > 0)
  limit 1
),
g as materialized (
  select exists (select 1 from f) or not (select n.is_counted from n) or (
    exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated r where r.id = any($1::uuid[]))
  ) as halts
),
d as (
  update {schema}.queue q set depth = q.depth + b.jobs
  from g, b
  where q.name = any(array[b.name]) and b.bound is not null and not g.halts
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
  else g.halts end, t.now, exists (select 1 from p) or exists (select 1 from b), f.name, f.depth,
  f.bound, f.closed, f.name is not null and exists (
    select 1 from {schema}.job o where o.id = any($1::uuid[])
  )
from g cross join t left join f on true
