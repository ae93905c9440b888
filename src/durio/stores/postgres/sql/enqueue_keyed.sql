-- As enqueue_plain, for jobs of which some have a key that nobody holds, as we hope. Those
-- whose key is held are left out, and named by their places.
with t as materialized (
  select coalesce($14::float8, extract(epoch from clock_timestamp())::float8) as now
),
g as materialized (
  select exists (
    select 1 from {schema}.queue q
    where q.name = any($12::text[])
      and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  ) or (
    exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated p where p.id = any($1::uuid[]))
  ) as halts
),
i as materialized (
  select u.id, u.lane, u.rank, u.task, u.payload, u.opts, u.ukey, u.umode, u.digest, u.n,
    t.now, t.now + u.ttl as until,
    case when u.run_at is not null then u.run_at
      when u.delay > 0 then t.now + u.delay end as run_at
  from t, g, unnest(
    $1::uuid[], $2::text[], $3::int2[], $4::text[], $5::bytea[], $6::float8[], $7::float8[],
    $15::bytea[], $8::bytea[], $9::int2[], $10::bytea[], $11::float8[]
  ) with ordinality
    u (id, lane, rank, task, payload, run_at, delay, opts, ukey, umode, digest, ttl, n)
  where not g.halts
),
q as (
  insert into {schema}.queue (name)
  select n.name from g, unnest($13::text[]) n (name) where not g.halts order by n.name
  on conflict (name) do nothing
),
k as (
  insert into {schema}.uniq (key, id, mode, digest, until)
  select i.ukey, i.id, i.umode, i.digest, i.until from i where i.ukey is not null
  order by i.ukey, i.n
  on conflict (key) do nothing
  returning id
),
w as materialized (
  select i.* from i where i.ukey is null or i.id in (select k.id from k)
),
j as (
  insert into {schema}.job (
    id, lane, rank, task, payload, run_at, opts, ukey, umode, created_at
  )
  select w.id, w.lane, w.rank, w.task, w.payload, w.run_at, w.opts, w.ukey, w.umode, w.now
  from w
  returning 1
),
s as (
  insert into {schema}.sched (lane, run_at, id)
  select w.lane, w.run_at, w.id from w where w.run_at > w.now
),
r as (
  insert into {schema}.ready (lane, rank, id)
  select w.lane, w.rank, w.id from w where w.run_at is null or w.run_at <= w.now
)
select case when (select count(*) from j) > 0 then not {schema}.check_first($1::uuid[])
  else g.halts end, t.now, array(
  select i.n::int4 from i where i.ukey is not null and i.id not in (select k.id from k)
)
from g, t
