-- Waiting holders of keys get new arguments: same id, same fence. Whoever has claimed or
-- cancelled one meanwhile has taken its lane row: the caller counts.
-- A join by `any(array[...])` can only be a probe.
with w as materialized (
  select *
  from unnest(
    $1::uuid[], $2::text[], $3::int2[], $4::text[], $5::bytea[], $6::float8[], $7::bytea[],
    $8::int2[]
  ) u (id, lane, rank, task, payload, run_at, opts, umode)
),
q as (
  insert into {schema}.queue (name)
  select n.name from unnest($10::text[]) n (name) order by n.name
  on conflict (name) do nothing
),
o as materialized (
  select j.id, j.lane, j.rank, j.run_at from w join {schema}.job j on j.id = any(array[w.id])
),
r as (
  delete from {schema}.ready r using o
  where r.lane = any(array[o.lane]) and r.rank = o.rank and r.id = o.id
  returning r.id, r.claim_no
),
s as (
  delete from {schema}.sched s using o
  where s.lane = any(array[o.lane]) and s.run_at = o.run_at and s.id = o.id
  returning s.id, s.claim_no
),
d as materialized (
  select w.*, x.claim_no
  from (select * from r union all select * from s) x join w on w.id = x.id
),
u as (
  update {schema}.job j
  set lane = d.lane, rank = d.rank, task = d.task, payload = d.payload, run_at = d.run_at,
    opts = d.opts, umode = d.umode, parked_at = null
  from d where j.id = any(array[d.id])
),
a as (
  insert into {schema}.sched (lane, run_at, id, claim_no)
  select d.lane, d.run_at, d.id, d.claim_no from d where d.run_at > $9::float8
),
b as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select d.lane, d.rank, d.id, d.claim_no from d
  where d.run_at is null or d.run_at <= $9::float8
)
select count(*) from d
