-- Upkeep by the leader: due jobs become ready, jobs of lost workers are rescued.

-- name: promote_due_jobs(limit, now, age)
-- only here: SQLite finds due jobs by `find_due_jobs` and promotes each by `promote_job`.
-- The `limit` oldest due jobs of all lanes. It jumps from lane to lane through the index, and
-- reads in each lane only jobs that have been due for at most `age` seconds.
-- A join by `any(array[...])` is always an index probe (statements.py).
with recursive
clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
lane (name) as (
  (select s.lane from {schema}.sched as s order by s.lane limit 1)
  union all
  select (
    select s.lane from {schema}.sched as s where s.lane > lane.name order by s.lane limit 1
  )
  from lane where lane.name is not null
),
due_jobs as materialized (
  select d.lane, d.run_at, d.id
  from lane
  cross join lateral (
    select s.lane, s.run_at, s.id from {schema}.sched as s
    where s.lane = lane.name
      and s.run_at between (select now - :age::float8 from clock) and (select now from clock)
    order by s.run_at, s.id
    limit :limit::int4
    for update skip locked
  ) as d
  order by d.run_at, d.id
  limit :limit::int4
),
taken as (
  delete from {schema}.sched as s using due_jobs
  where s.lane = any(array[due_jobs.lane]) and s.run_at = due_jobs.run_at and s.id = due_jobs.id
  returning s.id, s.claim_no, s.run_at
),
promoted as materialized (
  select b.lane, b.rank, b.id, taken.claim_no, taken.run_at,
    b.ties::jsonb -> 3 is not null as enters
  from taken join {schema}.job as b on b.id = any(array[taken.id])
),
new_ready as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select lane, rank, id, claim_no from promoted
)
select lane, rank, min(id::text)::uuid, count(*)::int4,
  array_agg(id order by run_at, id) filter (where enters)
from promoted group by lane, rank

-- name: next_due_anywhere(now, age)
-- Seconds until the next job is due in any lane: the first job of each lane is at the head of
-- its index. `age` as in `promote_due_jobs`.
with recursive
clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
lane (name) as (
  (select s.lane from {schema}.sched as s order by s.lane limit 1)
  union all
  select (
    select s.lane from {schema}.sched as s where s.lane > lane.name order by s.lane limit 1
  )
  from lane where lane.name is not null
)
select min((
  select s.run_at from {schema}.sched as s
  where s.lane = lane.name and s.run_at >= (select now - :age::float8 from clock)
  order by s.run_at limit 1
)) - (select now from clock)
from lane

-- name: find_lost_workers(now, namespace)
-- Workers whose lease has expired, and those whose rescue has begun.
select id from {schema}.worker
where (rescued or expires_at <= coalesce(
    :now::float8, extract(epoch from clock_timestamp())::float8
  ))
  and (:namespace::text is null or namespace = :namespace::text)
order by id
for update skip locked

-- name: mark_rescued(workers)
-- From here on these workers can neither renew their lease nor claim: they may have lost a
-- job already. Rows are locked by id.
update {schema}.worker as w set rescued = true
where w.id = any(array(
  select l.id from {schema}.worker as l where l.id = any(:workers::int4[])
  order by l.id for update
))
returning w.id

-- name: find_local_workers(host, namespace)
-- Workers with a life socket on this host.
select id, info::json -> 'life' ->> 'name' from {schema}.worker
where info::json -> 'life' ->> 'host' = :host::text
  and (:namespace::text is null or namespace = :namespace::text)
order by id

-- name: find_orphaned_jobs(limit)
-- Running jobs without a worker. It scans all running jobs, but rarely. No `not exists`: the
-- planner may turn it into a join of two full scans.
select r.id from {schema}.run as r
where (select 1 from {schema}.worker as w where w.id = r.worker) is null
order by r.id
limit :limit::int4

-- name: lock_orphaned_jobs(ids)
-- only here: SQLite has one writer and needs no locks.
-- A join by `any(array[...])` is always an index probe (statements.py), and so is a subquery
-- as a value that is compared with null.
select r.id, r.claim_no, b.retried, b.losses, r.worker
from {schema}.run as r join {schema}.job as b on b.id = any(array[r.id])
where r.id = any(:ids::uuid[])
  and (select 1 from {schema}.worker as w where w.id = r.worker) is null
order by r.id
for update of r skip locked
