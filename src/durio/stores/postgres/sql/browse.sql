-- Reading jobs, queues and workers.

-- name: read_jobs(ids)
-- Jobs by id, in whatever state. A live job has one row in `ready`, `sched` or `run`. `hist`
-- is searched only for ids that are found nowhere else.
-- A join by `any(array[...])` is always an index probe (statements.py).
with live as materialized (
  select j.id, j.lane, j.rank,
    case
      when r.id is not null then 3
      when s.id is not null then case when s.run_at = 'infinity' then 1 else 0 end
      else 2
    end as state,
    j.task, j.payload, j.retried, j.losses, j.lost, j.snoozed,
    coalesce(r.claim_no, s.claim_no, q.claim_no, 0) as claim_no, r.worker, j.opts, j.errors,
    r.progress, coalesce(r.cancel, false) as cancel, j.created_at,
    nullif(j.run_at, 'infinity') as run_at, r.started_at, j.ukey, j.parked_at
  from {schema}.job as j
  left join {schema}.run as r on r.id = any(array[j.id])
  left join {schema}.sched as s
    on s.lane = any(array[j.lane]) and s.run_at = j.run_at and s.id = j.id
  left join {schema}.ready as q
    on q.lane = any(array[j.lane]) and q.rank = j.rank and q.id = coalesce(
      (select k.id from {schema}.ready as k where k.job = j.id), j.id
    )
  where j.id = any(:ids::uuid[])
),
kept as materialized (
  select * from {schema}.kept
  where id = any(array(
    select id from unnest(:ids::uuid[]) as u (id) where id not in (select id from live)
  ))
)
select {common}, worker, opts, errors, progress, cancel, created_at, run_at, started_at,
  null::float8, null::bytea, null::float8, null::text, ukey, parked_at
from live
union all
select {common}, null::int4, opts, errors, progress, false, created_at, run_at, started_at,
  finished_at, result, result_until, reason, ukey, null::float8
from kept
union all
select {common}, null::int4, opts, errors, progress, false, created_at, run_at, started_at,
  finished_at, result, result_until, null::text, ukey, null::float8
from {schema}.hist
where id = any(array(
  select id from unnest(:ids::uuid[]) as u (id)
  where id not in (select id from live) and id not in (select id from kept)
))

-- name: read_states(ids)
-- States of jobs, and the columns that identify their lane rows: a blocked job is due at
-- infinity. `offset 0`: one index probe
-- per job. A join could scan a whole table.
with live as materialized (
  select j.id,
    case
      when r.id is not null then 3
      when s.id is not null then case when j.run_at = 'infinity' then 1 else 0 end
      else 2
    end as state,
    j.lane, j.rank, j.run_at
  from {schema}.job as j
  left join lateral (
    select r.id from {schema}.run as r where r.id = j.id offset 0
  ) as r on true
  left join lateral (
    select s.id from {schema}.sched as s
    where s.lane = j.lane and s.run_at = j.run_at and s.id = j.id
    offset 0
  ) as s on true
  where j.id = any(:ids::uuid[])
),
kept as materialized (
  select id, state, lane from {schema}.kept
  where id = any(array(
    select id from unnest(:ids::uuid[]) as u (id) where id not in (select id from live)
  ))
)
select id, state, lane, rank, run_at from live
union all
select id, state, lane, null::int2, null::float8 from kept
union all
select id, state, lane, null::int2, null::float8 from {schema}.hist
where id = any(array(
  select id from unnest(:ids::uuid[]) as u (id)
  where id not in (select id from live) and id not in (select id from kept)
))

-- name: read_ids(first, last, limit)
-- The newest ids of a range, by the index of ids of each table.
select id from (
  (select id from {schema}.job where id between :first::uuid and :last::uuid
    order by id desc limit :limit::int4)
  union all
  (select id from {schema}.kept where id between :first::uuid and :last::uuid
    order by id desc limit :limit::int4)
  union all
  (select id from {schema}.hist where id between :first::uuid and :last::uuid
    order by id desc limit :limit::int4)
) as found
order by id desc limit :limit::int4

-- name: count_jobs_before(id, limit)
-- Ready jobs of the same lane that come before this one, at most `limit`: index entries only.
select count(*) from (
  select 1
  from {schema}.job as j
  cross join lateral (
    select 1 from {schema}.ready as r
    where r.lane = j.lane and (r.rank, r.id) < (j.rank, j.id)
    limit :limit::int4
  ) as before
  where j.id = :id::uuid
) as found

-- name: read_lanes(first, end)
select name, paused, closed, maxsize, hand_maxsize, is_over from {schema}.queue
where name >= :first::text and name < :end::text
order by name

-- name: read_busy_lanes(first, end)
-- Lanes of a range with waiting jobs. It jumps from lane to lane through the indexes, so that
-- unused queues cost nothing.
with recursive
  ready (name) as (
    (
      select lane from {schema}.ready
      where lane >= :first::text and lane < :end::text order by lane limit 1
    )
    union all
    select (
      select r.lane from {schema}.ready as r
      where r.lane > ready.name and r.lane < :end::text order by r.lane limit 1
    )
    from ready where ready.name is not null
  ),
  sched (name) as (
    (
      select lane from {schema}.sched
      where lane >= :first::text and lane < :end::text order by lane limit 1
    )
    union all
    select (
      select s.lane from {schema}.sched as s
      where s.lane > sched.name and s.lane < :end::text order by s.lane limit 1
    )
    from sched where sched.name is not null
  )
select name, paused, closed, maxsize, hand_maxsize, is_over from {schema}.queue
where name = any(array(
  select name from ready where name is not null
  union
  select name from sched where name is not null
))
order by name

-- name: count_jobs_by_state(first, end)
-- Reads index entries of the narrow tables. Running jobs are few: each leads to its job, and
-- never the other way (`any(array[...])`, statements.py).
select lane, 2 as state, count(*) from {schema}.ready
where lane >= :first::text and lane < :end::text group by lane
union all
select lane, case when run_at = 'infinity' then 1 else 0 end, count(*) from {schema}.sched
where lane >= :first::text and lane < :end::text group by 1, 2
union all
select j.lane, 3, count(*)
from {schema}.run as r join {schema}.job as j on j.id = any(array[r.id])
where j.lane >= :first::text and j.lane < :end::text group by j.lane
union all
select lane, 5, count(*) from {schema}.kept
where state = 5 and lane >= :first::text and lane < :end::text group by lane

-- name: count_jobs_before_gates(first, end)
select j.lane, count(*)
from {schema}.gate_queue as q join {schema}.job as j on j.id = any(array[q.id])
where j.lane >= :first::text and j.lane < :end::text group by j.lane

-- name: read_oldest_ready(first, end)
-- Jumps from lane to lane, and reads in each the first few jobs of every priority.
with recursive lane (name) as (
  (
    select lane from {schema}.ready
    where lane >= :first::text and lane < :end::text order by lane limit 1
  )
  union all
  select (
    select r.lane from {schema}.ready as r
    where r.lane > lane.name and r.lane < :end::text order by r.lane limit 1
  )
  from lane where lane.name is not null
)
select lane.name, min(first.since)
from lane
cross join generate_series(0, 9) as level (rank)
cross join lateral (
  select greatest(j.created_at, j.run_at) as since
  from (
    select coalesce(r.job, r.id) as id from {schema}.ready as r
    where r.lane = lane.name and r.rank = level.rank order by r.id limit 10
  ) as next
  join {schema}.job as j on j.id = any(array[next.id])
) as first
where lane.name is not null
group by lane.name

-- name: read_waiting_tasks(lanes, limit)
-- Tasks of the first `limit` jobs of each lane, ready ones and scheduled ones.
select l.name, j.task, count(*)
from unnest(:lanes::text[]) as l (name)
cross join lateral (
  (select coalesce(r.job, r.id) as id from {schema}.ready as r where r.lane = l.name
    order by r.rank, r.id limit :limit::int4)
  union all
  (select id from {schema}.sched as s where s.lane = l.name and s.run_at < 'infinity'
    order by s.run_at limit :limit::int4)
) as next
join {schema}.job as j on j.id = any(array[next.id])
group by l.name, j.task

-- name: read_workers(namespace, now)
-- `now` is the time of a test; null means the server's time.
select w.id, w.info,
  w.expires_at - coalesce(:now::float8, extract(epoch from clock_timestamp())::float8),
  (select count(*) from {schema}.run as r where r.worker = w.id), w.vitals
from {schema}.worker as w
where :namespace::text is null or w.namespace = :namespace::text
order by w.id

-- name: read_namespaces(kinds)
-- Of queues, workers, and records of these kinds.
select split_part(q.name, ':', 1) as namespace from {schema}.queue as q
union
select w.namespace from {schema}.worker as w
union
select substr(r.kind, length(k.name) + 2)
from unnest(:kinds::text[]) as k (name)
cross join lateral (
  select kind from {schema}.record
  where kind > k.name || ':' and kind < k.name || ';'
  offset 0
) as r
order by 1
