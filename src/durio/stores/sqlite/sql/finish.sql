-- Recording outcomes. Each is fenced by (id, claim_no, worker): a row that does not change or
-- come back was refused.
-- State codes: 0 scheduled, 2 ready, 3 running, 4 done, 5 dead, 6 cancelled.

-- name: finish_packed(ids, claim_no, worker, now, results, result_until, gone_at, tied)
-- only here: PostgreSQL's `finish_jobs` covers this case.
-- `finish_done` for many jobs with the same claim number and times, without a key or a
-- retention of their own; all of them with ties, or none. `ids` are 16 bytes each,
-- `results` is a JSON array. One statement for all of them: the interpreter runs other code
-- meanwhile. It returns no rows; the caller compares the number of changed rows. The plus
-- signs keep SQLite from reading all jobs of the worker instead of these.
update job
set state = 4, worker = null, finished_at = :now, result = cast(each.value as blob),
  result_until = :result_until, gone_at = :gone_at, ties = null
from json_each(:results) as each
where job.id = substr(:ids, 1 + 16 * each.key, 16) and +job.state = 3
  and job.claim_no = :claim_no and +job.worker = :worker and job.ukey is null
  and (job.ties is not null) = :tied

-- name: read_ties_of(ids, results)
-- only here: PostgreSQL reads ties when it finishes jobs.
-- Ties of the jobs of `finish_packed` before it, in any order; jobs with a key are missing.
select job.id, job.seq, job.ties from json_each(:results) as each
cross join job on job.id = substr(:ids, 1 + 16 * each.key, 16)
where job.ukey is null and job.ties is not null

-- name: finish_done(id, claim_no, worker, now, result, result_until, gone_at, bucket, keep_count)
-- only here: PostgreSQL finishes all jobs of a call in one statement (`finish_jobs`).
-- One done job. The caller frees its key or keeps it until its window ends.
update job
set state = 4, worker = null, finished_at = :now, result = :result,
  result_until = :result_until, gone_at = :gone_at, bucket = :bucket,
  keep_count = :keep_count
where id = :id and claim_no = :claim_no and worker = :worker and state = 3
returning seq, id, ukey, umode, ties

-- name: finish_without_trace(id, claim_no, worker)
-- only here: PostgreSQL's `finish_jobs` covers this case.
-- One done job that is not kept.
delete from job
where id = :id and claim_no = :claim_no and worker = :worker and state = 3
returning seq, id, ukey, umode, ties

-- name: leave_running(id, claim_no, worker, kind, run_at, error, reason, killed_process, now, cancelled_gone_at, dead_gone_at, bucket, keep_count, parks)
-- The one exit from `running`, except done: `model.transitions.way_out` in SQL. Retries,
-- snoozes, releases, rescues and deaths all use it.
--
-- `run_at` is null for "now". `error` is null or a JSON object. `killed_process` says that
-- the job is known to have killed its process. `cancelled_gone_at` and `dead_gone_at` say
-- when retention may delete the job in that state. `bucket` and `keep_count` hold for a
-- cancelled job only. `parks` says that the worker does not know the task.
-- `kind` is an OutcomeKind: 1 retry, 2 snooze, 3 release, 4 dead, 5 cancel, 6 lost.
--
-- A loss is recorded as an error only where it counts as a loss or makes the job dead. `ties`
-- have the reason of a quiet cancel (model/ties.py).
update job
set
  state = exit.way,
  worker = null,
  alone = 0,
  cancel = 0,
  run_at = iif(exit.way = 0, :run_at, run_at),
  parked_at = iif(:parks, coalesce(parked_at, :now), null),
  reason = case exit.way when 5 then :reason when 6 then nullif(ties ->> '$[2]', '') end,
  retried = retried + (exit.way < 5 and :kind = 1),
  snoozed = snoozed + (exit.way < 5 and :kind = 2),
  losses = losses + exit.charged,
  lost = case
    when exit.way >= 5 or :kind = 3 then lost
    when :kind = 6 then lost + exit.charged
    else 0
  end,
  errors = case
    when :error is null or (:kind = 6 and not exit.charged and exit.way <> 5) then errors
    else json_insert(
      case
        when not json_valid(coalesce(errors, '?')) or json_type(errors) <> 'array' then '[]'
        when json_array_length(errors) >= 50 then json_remove(errors, '$[0]')
        else errors
      end,
      '$[#]', json(:error)
    )
  end,
  progress = iif(exit.way >= 5, progress, null),
  finished_at = iif(exit.way >= 5, :now, null),
  died_at = iif(exit.way = 5, :now, null),
  gone_at = case exit.way when 6 then :cancelled_gone_at when 5 then :dead_gone_at end,
  bucket = iif(exit.way = 6, :bucket, null),
  keep_count = iif(exit.way = 6, :keep_count, null)
from (
  select
    seq as exit_seq,
    :kind = 6 and not cancel and lost < 2 as charged,
    case
      when cancel or :kind = 5 then 6
      when :kind = 4 or (:kind = 6 and lost >= 2 and (alone or :killed_process)) then 5
      when :run_at > :now then 0
      else 2
    end as way
  from job
  where id = :id and claim_no = :claim_no and worker is :worker and state = 3
) as exit
where seq = exit.exit_seq
returning state, ukey, umode, queue, task, seq, ties

-- name: delete_job(id)
-- only here: PostgreSQL writes no row for a job that keeps nothing.
-- Deletes a job that is not kept, after its last statement.
delete from job where id = :id

-- name: write_progress(id, claim_no, worker, progress)
-- only here: PostgreSQL writes progress and `alone` in one statement.
update job set progress = :progress
where id = :id and claim_no = :claim_no and worker = :worker and state = 3
returning id

-- name: mark_alone(id, claim_no, worker)
-- only here: PostgreSQL writes progress and `alone` in one statement.
-- The job is about to run alone in a process: another loss makes it dead.
update job set alone = 1
where id = :id and claim_no = :claim_no and worker = :worker and state = 3
returning id

-- name: read_claim_state(id)
-- Called for a refused outcome, to see whether the job already ended by it, and by enqueue, to
-- see whether the id is stored.
select {shown_state}, claim_no, reason from job where id = :id

-- name: is_registered(worker, boot)
-- An expired lease whose row is still there unmarked: no rescue has taken its jobs.
select 1 from worker where id = :worker and boot = :boot and not rescued
