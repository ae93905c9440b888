-- Actions on queues and on jobs, by id or in bulk.
--
-- Lock order: guarded queues (bounds.sql), rows of `sched` and `ready`, their jobs, then rows
-- of `run`: an exchange that has locked a row of `ready` may wait for a row of `run`, and never
-- the other way round. Rows are locked by id and with `skip locked`: another transaction may
-- be a caller's, and long.

-- name: lock_queue(lane)
-- only here: SQLite has one writer and needs no locks.
select paused, closed, hand_maxsize from {schema}.queue where name = :lane::text
for no key update

-- name: change_queue(lane, paused, closed)
-- null leaves a value as it is.
update {schema}.queue
set paused = coalesce(:paused::bool, paused), closed = coalesce(:closed::bool, closed)
where name = :lane::text

-- name: find_namespace_workers(namespace)
-- only here: SQLite wakes workers through their sockets (`find_workers_to_wake`).
select id from {schema}.worker where namespace = :namespace::text

-- name: move_ready_jobs(ids, lanes, ranks, target)
-- only here: SQLite's lane is a column of the job (`move_job`).
-- The caller has locked these rows.
-- A join by `any(array[...])` is always an index probe (statements.py).
with gone as (
  delete from {schema}.ready as t
  using unnest(:ids::uuid[], :lanes::text[], :ranks::int2[]) as u (id, lane, rank)
  where t.lane = any(array[u.lane]) and t.rank = u.rank and t.id = coalesce(
    (select k.id from {schema}.ready as k where k.job = u.id), u.id
  )
  returning t.rank, t.id, t.claim_no, t.job
),
moved as (
  update {schema}.job set lane = :target::text
  where id = any(array(select coalesce(job, id) from gone))
)
insert into {schema}.ready (lane, rank, id, claim_no, job)
select :target::text, rank, id, claim_no, job from gone

-- name: move_scheduled_jobs(ids, lanes, run_ats, target)
-- only here: SQLite's lane is a column of the job (`move_job`).
-- The caller has locked these rows.
-- A join by `any(array[...])` is always an index probe (statements.py).
with gone as (
  delete from {schema}.sched as t
  using unnest(:ids::uuid[], :lanes::text[], :run_ats::float8[]) as u (id, lane, run_at)
  where t.lane = any(array[u.lane]) and t.run_at = u.run_at and t.id = u.id
  returning t.run_at, t.id, t.claim_no
),
moved as (
  update {schema}.job set lane = :target::text where id = any(array(select id from gone))
)
insert into {schema}.sched (lane, run_at, id, claim_no)
select :target::text, run_at, id, claim_no from gone

-- name: lock_scheduled_jobs(ids, lanes, run_ats)
-- only here: SQLite has one writer and needs no locks.
-- A job that was promoted meanwhile is not returned: its row is gone. Nor is one that another
-- transaction has locked: it may be a caller's long transaction.
-- A join by `any(array[...])` is always an index probe (statements.py).
select t.id, t.claim_no
from unnest(:ids::uuid[], :lanes::text[], :run_ats::float8[]) as u (id, lane, run_at)
join {schema}.sched as t on t.lane = any(array[u.lane]) and t.run_at = u.run_at and t.id = u.id
order by t.id
for update of t skip locked

-- name: lock_ready_jobs(ids, lanes, ranks)
-- only here: SQLite has one writer and needs no locks.
-- A job that was claimed meanwhile is not returned: its row is gone. Nor is one that another
-- transaction has locked: it may be a caller's long transaction.
-- A join by `any(array[...])` is always an index probe (statements.py).
select u.id, t.claim_no
from unnest(:ids::uuid[], :lanes::text[], :ranks::int2[]) as u (id, lane, rank)
join {schema}.ready as t on t.lane = any(array[u.lane]) and t.rank = u.rank and t.id = coalesce(
  (select k.id from {schema}.ready as k where k.job = u.id), u.id
)
order by u.id
for update of t skip locked

-- name: lock_jobs(ids)
-- only here: SQLite has one writer and needs no locks.
select id, lane, opts, ukey, ties, held from {schema}.job
where id = any(:ids::uuid[])
order by id
for update

-- name: find_keys_of_final_jobs(ids)
-- only here: SQLite reads the key with the task (`find_task_and_key`).
-- The caller has locked these rows.
select id, lane, opts, ukey, ties from {schema}.kept where id = any(:ids::uuid[])

-- name: rename_job(ids, keys, task)
-- Waiting jobs.
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.job as j set task = :task::text, ukey = u.key
from unnest(:ids::uuid[], :keys::bytea[]) as u (id, key)
where j.id = any(array[u.id])

-- name: rename_final_jobs(ids, keys, task)
-- only here: SQLite has one table of jobs (`rename_job`).
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.kept as k set task = :task::text, ukey = u.key
from unnest(:ids::uuid[], :keys::bytea[]) as u (id, key)
where k.id = any(array[u.id])

-- name: find_jobs_of_other_tasks(ids, task)
-- only here: SQLite reads the task of each job (`find_task_and_key`).
-- Of jobs that were asked to be renamed, those that were not.
select id from {schema}.job where id = any(:ids::uuid[]) and task <> :task::text
union all
select id from {schema}.kept where id = any(:ids::uuid[]) and task <> :task::text

-- name: delete_scheduled(ids, lanes, run_ats)
-- only here: SQLite's states are a column, not tables.
-- A join by `any(array[...])` is always an index probe (statements.py).
delete from {schema}.sched as t
using unnest(:ids::uuid[], :lanes::text[], :run_ats::float8[]) as u (id, lane, run_at)
where t.lane = any(array[u.lane]) and t.run_at = u.run_at and t.id = u.id

-- name: delete_ready(ids, lanes, ranks)
-- only here: SQLite's states are a column, not tables.
-- A join by `any(array[...])` is always an index probe (statements.py).
delete from {schema}.ready as t
using unnest(:ids::uuid[], :lanes::text[], :ranks::int2[]) as u (id, lane, rank)
where t.lane = any(array[u.lane]) and t.rank = u.rank and t.id = coalesce(
  (select k.id from {schema}.ready as k where k.job = u.id), u.id
)

-- name: cancel_waiting(ids, claim_nos, gone_ats, buckets, keep_counts, are_kept, ties, reason, now)
-- Jobs that are cancelled while they wait, also before gates. The caller has deleted their rows
-- in `ready` and `sched`. `are_kept` says which of them stay as final jobs. `ties`: what they keep for a retry.
-- A join by `any(array[...])` is always an index probe (statements.py).
with cancelled as materialized (
  select * from unnest(
    :ids::uuid[], :claim_nos::int4[], :gone_ats::float8[], :buckets::text[],
      :keep_counts::int4[], :are_kept::bool[], :ties::text[]
  ) as u (id, claim_no, gone_at, bucket, keep_count, stays, kept_ties)
),
gone as (
  delete from {schema}.job as j using cancelled where j.id = any(array[cancelled.id])
  returning j.*, cancelled.claim_no, cancelled.gone_at, cancelled.bucket, cancelled.keep_count,
    cancelled.stays, cancelled.kept_ties
),
left_gates as (
  delete from {schema}.gate_queue where id = any(:ids::uuid[])
)
insert into {schema}.kept (
  id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
  errors, created_at, run_at, finished_at, ukey, umode, gone_at, bucket, keep_count, ties, reason
)
select id, lane, rank, 6, task, payload, retried, losses, lost, snoozed, claim_no, opts,
  errors, created_at, nullif(run_at, 'infinity'), :now::float8, ukey, umode, gone_at, bucket,
  keep_count, kept_ties, :reason::text
from gone
where stays

-- name: kill_waiting(ids, claim_nos, ties, error, reason, now, gone_at)
-- Jobs that are dead without an attempt. The caller has deleted their rows in `ready` and
-- `sched`. A job keeps at most 50 errors, as in `leave_running`. Returns the keys to free: the
-- window of a key outlasts the death.
-- A join by `any(array[...])` is always an index probe (statements.py).
with killed as materialized (
  select * from unnest(:ids::uuid[], :claim_nos::int4[], :ties::text[])
    as u (id, claim_no, kept_ties)
),
gone as (
  delete from {schema}.job as j using killed where j.id = any(array[killed.id])
  returning j.*, killed.claim_no, killed.kept_ties
),
dead as (
  insert into {schema}.kept (
    id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, created_at, run_at, finished_at, ukey, umode, gone_at, ties, reason
  )
  select id, lane, rank, 5, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    (array_append(errors, :error::bytea))[greatest(cardinality(errors) - 48, 1):],
    created_at, nullif(run_at, 'infinity'), :now::float8, ukey, umode, :gone_at::float8,
    kept_ties, :reason::text
  from gone
)
select ukey, id from gone where ukey is not null and umode <> 2

-- name: lock_running_jobs(ids)
-- only here: SQLite has one writer and needs no locks.
-- A job that was finished meanwhile is not returned: its row is gone. Nor is one that another
-- transaction has locked: a task's own transaction is finishing it and may be long.
select id, worker from {schema}.run
where id = any(:ids::uuid[])
order by id
for update skip locked

-- name: cancel_running(ids)
-- A request that is already there is not written again, and wakes nobody: it would interrupt
-- the cleanup of the task.
update {schema}.run set cancel = true where id = any(:ids::uuid[]) and not cancel
returning worker

-- name: lock_final_jobs(ids)
-- only here: SQLite has one writer and needs no locks.
-- Of two actions on the same job only one gets it. Rows that another transaction has locked
-- are skipped.
select id, state, ties, ukey, umode, case when ukey is not null then payload end, id
from {schema}.kept
where id = any(:ids::uuid[]) and state in (5, 6)
order by id
for update skip locked

-- name: retry_job(ids, payload, now, blocked_ids)
-- Counters are reset to zero, the claim number stays. `payload`: other arguments, or null.
-- The jobs count as due since `now`, however old they are. `blocked_ids`: those that wait for
-- a log again.
with back as (
  delete from {schema}.kept where id = any(:ids::uuid[]) returning *
),
begun as (
  insert into {schema}.job (
    id, lane, rank, task, payload, run_at, ukey, umode, opts, errors, created_at, ties
  )
  select id, lane, rank, task, coalesce(:payload::bytea, payload),
    case when id = any(:blocked_ids::uuid[]) then 'infinity' else :now::float8 end, ukey,
    umode, opts, errors, created_at, ties
  from back
  on conflict (id) do nothing
  returning id
),
-- `is true` keeps the planner from a join, which would be a nested loop here.
waiting as materialized (
  select lane, rank, id, claim_no, opts, id = any(:blocked_ids::uuid[]) as is_blocked
  from back where (id in (select id from begun)) is true
),
blocked as (
  insert into {schema}.sched (lane, run_at, id, claim_no)
  select lane, 'infinity', id, claim_no from waiting where is_blocked
),
new_ready as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select lane, rank, id, claim_no from waiting where not is_blocked
)
select lane, id, opts from waiting

-- name: set_options(ids, opts)
-- After `retry_job`, for jobs that expire no more.
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.job as j set opts = u.opts
from unnest(:ids::uuid[], :opts::bytea[]) as u (id, opts)
where j.id = any(array[u.id])

-- name: run_job_now(ids, lanes, run_ats, now)
-- Scheduled jobs become ready and are due from now on. The caller has locked their rows.
-- A join by `any(array[...])` is always an index probe (statements.py).
with gone as (
  delete from {schema}.sched as t
  using unnest(:ids::uuid[], :lanes::text[], :run_ats::float8[]) as u (id, lane, run_at)
  where t.lane = any(array[u.lane]) and t.run_at = u.run_at and t.id = u.id
  returning t.id, t.claim_no
),
due as (
  update {schema}.job as j set run_at = :now::float8
  from gone where j.id = any(array[gone.id])
  returning j.lane, j.rank, j.id, gone.claim_no
)
insert into {schema}.ready (lane, rank, id, claim_no)
select lane, rank, id, claim_no from due
returning id

-- name: discard_job(ids)
delete from {schema}.kept where id = any(:ids::uuid[])

-- name: restore_job(id, lane, rank, task, payload, retried, losses, snoozed, claim_no, lost, opts, errors, created_at, started_at, finished_at, gone_at, reason)
-- A dead letter from a file. A job that is already stored stays as it is.
insert into {schema}.kept (
  id, lane, rank, state, task, payload, retried, losses, snoozed, claim_no, lost, opts,
  errors, created_at, started_at, finished_at, gone_at, reason
)
select :id::uuid, :lane::text, :rank::int2, 5, :task::text, :payload::bytea, :retried::int4,
  :losses::int4, :snoozed::int4, :claim_no::int4, :lost::int2, :opts::bytea, :errors::bytea[],
  :created_at::float8, :started_at::float8, :finished_at::float8, :gone_at::float8,
  :reason::text
where not exists (select 1 from {schema}.job where id = :id::uuid)
  and not exists (select 1 from {schema}.hist where id = :id::uuid)
on conflict (id) do nothing
returning id

-- name: read_bulk_mark
-- The newest id that a bulk action may act on, and the number of all deaths.
select
  greatest(
    (select id from {schema}.job order by id desc limit 1),
    (select id from {schema}.kept order by id desc limit 1)
  ),
  coalesce(
    (select dead from {schema}.tally where lane = '' and task = '' and error_type = ''), 0
  )
