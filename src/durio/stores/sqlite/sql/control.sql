-- What operators do to queues and jobs.
-- State codes: 0 scheduled, 2 ready, 3 running, 4 done, 5 dead, 6 cancelled.

-- name: change_queue(lane, paused, closed)
-- Null leaves a setting as it is.
insert into queue (name, paused, closed)
values (:lane, coalesce(:paused, 0), coalesce(:closed, 0))
on conflict (name) do update
set paused = coalesce(:paused, paused), closed = coalesce(:closed, closed)

-- name: move_job(id, to_lane)
-- only here: PostgreSQL moves rows of `ready` and `sched`.
update job set queue = :to_lane where id = :id and state in (0, 1, 2)

-- name: move_wait(id, to_lane)
-- only here: a blocked job of PostgreSQL is a row of `sched`.
update waits set queue = :to_lane where seq = (select seq from job where id = :id)

-- name: find_task_and_key(id)
-- only here: PostgreSQL locks the jobs that it renames (`lock_jobs`, `find_keys_of_final_jobs`).
select task, ukey, opts from job where id = :id

-- name: rename_job(id, task, key)
update job set task = :task, ukey = :key where id = :id

-- name: find_state_and_lane(id)
-- only here: PostgreSQL reads both with `read_states`.
-- Read first, so that an action can report the state before and after.
select {shown_state}, queue from job where id = :id

-- name: cancel_waiting(id, now, gone_at, reason)
update job set state = 6, finished_at = :now, gone_at = :gone_at, reason = :reason
where id = :id and state < 3
returning ukey, opts, queue, seq, ties

-- name: kill_waiting(id, now, gone_at, reason, error)
-- A waiting job is dead. It keeps at most 50 errors, as in `leave_running`.
update job
set state = 5, finished_at = :now, died_at = :now, gone_at = :gone_at, reason = :reason,
  errors = json_insert(
    case
      when not json_valid(coalesce(errors, '?')) or json_type(errors) <> 'array' then '[]'
      when json_array_length(errors) >= 50 then json_remove(errors, '$[0]')
      else errors
    end,
    '$[#]', json(:error)
  )
where id = :id and state < 3
returning ukey, umode, queue, task, seq, ties

-- name: cancel_running(id)
-- Asks the worker to cancel it; the worker reads this with its next renewal. A request that
-- is already there wakes nobody: it would interrupt the cleanup of the task.
update job set cancel = 1 where id = :id and state = 3 and not cancel returning worker

-- name: set_retention(id, gone_at, bucket, keep_count)
-- only here: PostgreSQL writes the retention when it writes the cancelled job.
-- After `cancel_waiting`, for a job with a retention of its own.
update job set gone_at = :gone_at, bucket = :bucket, keep_count = :keep_count where id = :id

-- name: find_key_of_final_job(id, now)
-- only here: PostgreSQL locks the job, the key and its holder one after the other.
-- Before a retry: the key of a dead or cancelled job, and whether another job holds that key
-- now.
select ukey, umode, payload,
  exists (
    select 1 from uniq join job as holder on holder.id = uniq.id
    where uniq.key = job.ukey and uniq.id <> job.id and (holder.state < 4 or uniq.until > :now)
  )
from job
where id = :id and ukey is not null and state in (5, 6)

-- name: retry_job(id, payload, now)
-- Counters start at zero, the fence stays. `payload` holds new arguments, or null. `run_at`
-- is now: the job waits from here on, however old it is.
update job
set state = 2, retried = 0, losses = 0, lost = 0, snoozed = 0, cancel = 0, alone = 0,
  worker = null, parked_at = null, run_at = :now, started_at = null, finished_at = null,
  died_at = null, died_no = null, gone_at = null, progress = null, reason = null,
  bucket = null, keep_count = null, payload = coalesce(:payload, payload)
where id = :id and state in (5, 6)
returning queue, seq, ties, opts

-- name: set_options(id, opts)
-- After `retry_job`, for a job that expires no more.
update job set opts = :opts where id = :id

-- name: block_job(id)
-- only here: PostgreSQL's `retry_job` says which jobs are blocked.
-- After `retry_job`, for a job that has to wait for a log again.
update job set state = 1 where id = :id

-- name: run_job_now(id, now)
-- A scheduled job becomes ready and is due from now on.
update job set state = 2, run_at = :now where id = :id and state = 0
returning queue, iif(ties is null, null, seq)

-- name: discard_job(id)
delete from job where id = :id
returning ukey

-- name: restore_job(id, lane, rank, task, payload, retried, losses, lost, snoozed, claim_no, opts, errors, created_at, started_at, finished_at, gone_at, reason, death_number)
-- A dead letter from a file. A job that is already stored stays as it is.
insert into job (
  id, queue, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
  errors, created_at, started_at, finished_at, died_at, gone_at, reason, died_no
)
values (
  :id, :lane, :rank, 5, :task, :payload, :retried, :losses, :lost, :snoozed, :claim_no, :opts,
  :errors, :created_at, :started_at, :finished_at, :finished_at, :gone_at, :reason,
  :death_number
)
on conflict (id) do nothing
returning id

-- name: read_bulk_mark()
-- How far a bulk action looks: the newest job, its creation time, and the number of deaths so
-- far. The caller appends a count, so that count and mark are read in one statement.
select coalesce((select max(seq) from job), 0),
  coalesce((select created_at from job where seq = (select max(seq) from job)), 0),
  coalesce((select dead from tally where queue = '' and task = '' and error_type = ''), 0)
