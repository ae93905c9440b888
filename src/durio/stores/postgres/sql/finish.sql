-- Outcomes: how jobs leave the state `running`. A done job leaves through the part `done`,
-- every other one through `leave_running`. Both are fenced: id, claim number and worker must
-- be those of the row in `run`.

-- part: done
-- Done outcomes, each fenced, become history. Used by `exchange` and `finish_jobs`.
-- `result_seconds`: for how long each result may be read. `keep_seconds`, `buckets`,
-- `keep_counts`: a retention of its own; empty arrays mean none. `done_seconds`: how long done
-- jobs are kept. The statement defines `clock` with the time, and `go` with whether to act.
--
-- No join may decide how `run` and `job` are read: the planner takes a table that was empty at
-- the last analyze for one row, and would scan all its dead row versions.
finished as (
  delete from {schema}.run as r
  where r.id = any(:ids::uuid[]) and r.worker + 0 = :worker::int4
    and r.claim_no = (:claim_nos::int4[])[width_bucket(r.id, :ids::uuid[])]
    and (select ok from go)
  returning r.id, r.started_at, r.progress, width_bucket(r.id, :ids::uuid[]) as n
),
finished_rows as materialized (
  select array_agg(finished.id order by finished.n) as ids,
    array_agg(finished.started_at order by finished.n) as starts,
    array_agg(finished.progress order by finished.n) as notes
  from finished
),
removed_jobs as (
  delete from {schema}.job as b where b.id = any((select ids from finished_rows)::uuid[])
  returning b.id, b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost, b.snoozed,
    b.run_at, b.ukey, b.umode, b.opts, b.errors, b.created_at, b.ties, b.held,
    width_bucket(b.id, :ids::uuid[]) as n,
    width_bucket(b.id, (select ids from finished_rows)) as k
),
-- Within the window of its key a done job still holds the key, and callers get its result. So
-- job and result are kept until the window ends.
ended_jobs as materialized (
  select removed_jobs.*, clock.now, (:claim_nos::int4[])[removed_jobs.n] as claim_no,
    (select starts from finished_rows)[removed_jobs.k] as started_at,
    (select notes from finished_rows)[removed_jobs.k] as progress,
    (:results::bytea[])[removed_jobs.n] as result,
    (:result_seconds::float8[])[removed_jobs.n] as result_seconds,
    (:keep_seconds::float8[])[removed_jobs.n] as keep_seconds,
    (:buckets::text[])[removed_jobs.n] as bucket,
    (:keep_counts::int4[])[removed_jobs.n] as keep_count, (
      select u.until from {schema}.uniq as u
      where removed_jobs.umode = 2 and u.key = removed_jobs.ukey and u.id = removed_jobs.id
    ) as until
  from removed_jobs, clock
),
history as (
  insert into {schema}.hist (
    id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, finished_at, result, result_until,
    ukey, umode
  )
  select id, lane, rank, 4, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, now, result,
    greatest(now + result_seconds, until), ukey, umode
  from ended_jobs
  where keep_seconds is null and (until is null or until <= now + :done_seconds::float8)
),
retained as (
  insert into {schema}.kept (
    id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, finished_at, result, result_until,
    ukey, umode, gone_at, bucket, keep_count
  )
  select id, lane, rank, 4, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, now, result,
    greatest(now + result_seconds, until), ukey, umode,
    greatest(now + coalesce(keep_seconds, :done_seconds::float8), until),
    case when keep_count is not null then bucket end, keep_count
  from ended_jobs
  where (keep_seconds > 0 or keep_count is not null)
    or (keep_seconds is null and until > now + :done_seconds::float8)
)

-- name: finish_jobs(ids, claim_nos, results, result_seconds, keep_seconds, buckets, keep_counts, worker, done_seconds, now)
-- only here: SQLite finishes job by job.
-- Done outcomes, each fenced. Returns which of them were accepted, the keys to free, and the
-- ties of the jobs with the places that they give back.
with
clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
go as materialized (select true as ok),
{done}
select finished.n::int4, null::bytea, null::text, null::int2 from finished
union all
select ended_jobs.n::int4, case when ended_jobs.umode <> 2
    or (ended_jobs.keep_seconds <= 0 and ended_jobs.keep_count is null)
  then ended_jobs.ukey end, ended_jobs.ties, ended_jobs.held
from ended_jobs
where ended_jobs.ukey is not null or ended_jobs.ties is not null

-- name: lock_finishing_jobs(ids)
-- only here: SQLite has one writer and needs no locks.
-- Locks the rows in `run` by id, before several statements change them in other orders.
select id from {schema}.run
where id = any(:ids::uuid[])
order by id
for update

-- name: write_progress_and_alone(ids, claim_nos, progress, are_alone, worker)
-- only here: SQLite writes progress and the mark by two statements.
-- Progress, and the mark of a job that is about to run alone. Returns the jobs that pass the
-- fence. A row that another transaction has locked is left as it is and not refused: a
-- task's own transaction is finishing that job and may be long. Progress is of no use then.
-- A join by `any(array[...])` is always an index probe (statements.py).
with fenced as materialized (
  select r.id, r.claim_no, u.progress, u.alone
  from unnest(:ids::uuid[], :claim_nos::int4[], :progress::bytea[], :are_alone::bool[])
    as u (id, claim_no, progress, alone)
  join {schema}.run as r
    on r.id = any(array[u.id]) and r.claim_no = u.claim_no and r.worker + 0 = :worker::int4
),
unlocked as materialized (
  select r.id, m.progress, m.alone
  from fenced as m
  join {schema}.run as r on r.id = any(array[m.id]) and r.claim_no = m.claim_no
  for update of r skip locked
),
updated as (
  update {schema}.run as r
  set progress = coalesce(f.progress, r.progress), alone = r.alone or f.alone
  from unlocked as f
  where r.id = any(array[f.id])
)
select m.id, m.claim_no from fenced as m

-- name: is_registered(worker)
-- A lease may have expired while the worker's row is still there: its jobs were not rescued.
select 1 from {schema}.worker where id = :worker::int4 and not rescued

-- name: read_claim_state(ids)
-- How these jobs ended, if they are final.
select h.id, h.claim_no, h.state, null::text from {schema}.hist as h
where h.id = any(:ids::uuid[])
union all
select k.id, k.claim_no, k.state, k.reason from {schema}.kept as k
where k.id = any(:ids::uuid[])

-- name: lock_bounded_queues(ids, lanes)
-- only here: SQLite has one writer and needs no locks.
-- Locks the bounded queues whose depth these jobs or lanes may change: first and by name.
select q.name from {schema}.queue as q
where (q.maxsize is not null or q.hand_maxsize is not null)
  and coalesce(q.hand_maxsize, q.maxsize) >= 0 and q.name = any(
  :lanes::text[] || array(select b.lane from {schema}.job as b where b.id = any(:ids::uuid[]))
)
order by q.name
for no key update

-- name: leave_running(ids, claim_nos, workers, kinds, delays, errors, reasons, killed_process, parks, enter_again, keep_seconds, buckets, keep_counts, now, done_seconds, dead_seconds)
-- The exit from `running`: model/transitions.py in SQL. Every outcome but `done` uses it.
--
-- `errors`: null for none. `killed_process`: the attempt is known to have ended its process.
-- `parks`: no worker here knows the task. `enter_again`: the job passes its gates again, and
-- gives places back as with a delay. `keep_seconds`, `buckets`, `keep_counts`: a
-- retention of its own for a cancelled job. `now`: null means the server's time.
-- `done_seconds`, `dead_seconds`: how long such jobs are kept. A row that is not returned was
-- refused by the fence.
--
-- A loss is recorded as an error only when it is charged or makes the job dead. `ties` have the
-- reason of a quiet cancel (model/ties.py).
-- A join by `any(array[...])` is always an index probe: statements.py says why.
with
clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
left_run as (
  delete from {schema}.run as r
  using unnest(
    :ids::uuid[], :claim_nos::int4[], :workers::int4[], :kinds::int2[], :delays::float8[],
    :errors::bytea[], :reasons::text[], :killed_process::bool[], :parks::bool[],
    :enter_again::bool[], :keep_seconds::float8[], :buckets::text[], :keep_counts::int4[]
  ) with ordinality as o (
    id, claim_no, worker, kind, delay, error, reason, killed_process, parks, enters,
    keep_seconds, bucket, keep_count, n
  )
  where r.id = any(array[o.id]) and r.claim_no = o.claim_no and r.worker + 0 = o.worker
  returning r.id, r.claim_no, r.cancel, r.alone, r.started_at, r.progress, o.kind, o.delay,
    o.error, o.reason, o.killed_process, o.parks, o.enters, o.keep_seconds, o.bucket, o.keep_count, o.n
),
judged as (
  select left_run.*, clock.now, b.lane, b.rank, b.task, b.ukey, b.umode, b.ties, b.held,
    left_run.kind = 6 and not left_run.cancel and b.lost < 2 as charged,
    case
      when left_run.cancel or left_run.kind = 5 then 6
      when left_run.kind = 4 or (
        left_run.kind = 6 and b.lost >= 2 and (left_run.alone or left_run.killed_process)
      ) then 5
      when left_run.delay > 0 then 0
      else 2
    end as way
  from clock, left_run join {schema}.job as b on b.id = any(array[left_run.id])
),
exits as materialized (
  select judged.*, judged.error is not null
    and (judged.kind <> 6 or judged.charged or judged.way = 5) as records_error
  from judged
),
-- A release that changes nothing writes nothing.
changed_jobs as (
  update {schema}.job as b
  set
    retried = b.retried + (exits.kind = 1)::int4,
    snoozed = b.snoozed + (exits.kind = 2)::int4,
    losses = b.losses + exits.charged::int4,
    lost = case exits.kind
      when 3 then b.lost when 6 then b.lost + exits.charged::int4 else 0
    end,
    run_at = case when exits.way = 0 then exits.now + exits.delay else b.run_at end,
    held = case when exits.held is not null and (exits.way = 0 or exits.enters)
      then {schema}.final_places_1(exits.ties, exits.held) else b.held end,
    parked_at = case when exits.parks then coalesce(b.parked_at, exits.now) end,
    errors = case
      when exits.records_error then
        (array_append(b.errors, exits.error))[greatest(cardinality(b.errors) - 48, 1):]
      else b.errors
    end
  from exits
  where b.id = any(array[exits.id]) and exits.way <= 2
    and (exits.kind <> 3 or exits.way = 0 or exits.parks or exits.enters
      or b.parked_at is not null)
),
new_scheduled as (
  insert into {schema}.sched (lane, run_at, id, claim_no)
  select lane, now + delay, id, claim_no from exits where way = 0
),
new_ready as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select lane, rank, id, claim_no from exits where way = 2
),
final_jobs as (
  delete from {schema}.job as b using exits where b.id = any(array[exits.id]) and exits.way >= 5
  returning b.id, b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost, b.snoozed,
    b.run_at, b.ukey, b.umode, b.opts, b.created_at, b.ties,
    case
      when exits.records_error then
        (array_append(b.errors, exits.error))[greatest(cardinality(b.errors) - 48, 1):]
      else b.errors
    end as errors, exits.claim_no, exits.started_at, exits.progress, exits.way, exits.reason,
    exits.now, exits.keep_seconds, exits.bucket, exits.keep_count
),
kept_jobs as (
  insert into {schema}.kept (
    id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, finished_at, ukey, umode, ties, reason,
    gone_at, bucket, keep_count
  )
  select id, lane, rank, way, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, now, ukey, umode, ties,
    case way when 5 then reason when 6 then nullif(ties::jsonb ->> 2, '') end,
    now + case when way = 5 then :dead_seconds::float8
      else coalesce(keep_seconds, :done_seconds::float8) end,
    case when way = 6 and keep_count is not null then bucket end,
    case when way = 6 then keep_count end
  from final_jobs
  where way = 5 or keep_seconds is null or keep_seconds > 0 or keep_count is not null
)
-- A window outlasts every end but a cancellation. A key that holds only while the job waits
-- was freed by the claim, unless another transaction had locked it then.
select n::int4, case
    when way = 6 or (way = 5 and umode <> 2) or umode = 0 then ukey
  end, case when way >= 5 or held is not null or enters then ties end, held, way, lane, task, rank
from exits
order by n
