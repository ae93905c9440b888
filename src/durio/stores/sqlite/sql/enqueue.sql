-- Accepting jobs. State codes: 0 scheduled, 2 ready, 3 running, 4 done, 5 dead, 6 cancelled.

-- name: insert_job(id, lane, rank, state, task, payload, run_at, opts, key, key_mode, now)
-- Called by enqueue, once for each job. A job whose id is already stored stays as it is.
-- Returns no rows: the caller compares the number of changed rows, which is almost three
-- times as fast as RETURNING.
insert into job (
  id, queue, rank, state, task, payload, run_at, opts, ukey, umode, created_at
)
values (
  :id, :lane, :rank, :state, :task, :payload, :run_at, :opts, :key, :key_mode, :now
)
on conflict (id) do nothing

-- name: insert_tied_job(id, lane, rank, state, task, payload, run_at, opts, key, key_mode, now, ties)
-- only here: PostgreSQL stores ties by a statement of their own.
-- `insert_job` for a job that waits for a log, or appends to logs when it ends.
insert into job (
  id, queue, rank, state, task, payload, run_at, opts, ukey, umode, created_at, ties
)
values (
  :id, :lane, :rank, :state, :task, :payload, :run_at, :opts, :key, :key_mode, :now, :ties
)
on conflict (id) do nothing

-- name: rewrite_tied_job(id, payload)
-- `rewrite_job` for a node of a plan: only its arguments change.
update job set payload = :payload where id = :id

-- name: rewrite_job(id, lane, rank, state, task, payload, run_at, opts, key_mode, ties)
-- Called by enqueue when a key says "replace": the waiting holder of the key gets new
-- arguments. It keeps its id, its place in the queue (`seq`) and its fence (`claim_no`).
update job
set queue = :lane, rank = :rank, state = :state, task = :task, payload = :payload,
  run_at = :run_at, opts = :opts, umode = :key_mode, ties = :ties, parked_at = null
where id = :id

-- name: insert_queue(lane)
-- Every lane that ever got a job has a row. Called by enqueue, restore and move.
insert into queue (name) values (:lane) on conflict (name) do nothing
