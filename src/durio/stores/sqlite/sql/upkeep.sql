-- Promoting due jobs and rescuing jobs of lost workers.
-- State codes: 0 scheduled, 2 ready, 3 running.

-- name: next_due_anywhere()
-- When the next job of all lanes is due. Jumps from lane to lane: the first due job of each
-- lane is at the head of its part of the index.
with recursive scheduled (name) as (
  select min(queue) from job where state = 0
  union all
  select (select min(queue) from job where state = 0 and queue > scheduled.name)
  from scheduled where scheduled.name is not null
)
select min((select min(run_at) from job where state = 0 and queue = scheduled.name))
from scheduled where scheduled.name is not null

-- name: find_due_jobs(lane, now, limit)
-- only here: PostgreSQL promotes the oldest due jobs of all lanes in one statement.
-- Run for each lane with waiting jobs; the caller promotes the oldest of all.
select run_at, seq, queue from job
where state = 0 and queue = :lane and run_at <= :now
order by run_at limit :limit

-- name: promote_job(seq)
-- only here: PostgreSQL promotes the oldest due jobs of all lanes in one statement.
update job set state = 2 where seq = :seq and state = 0
returning iif(ties is null, null, seq)

-- name: find_lost_workers(boot, monotonic_seconds, namespace)
-- Workers whose lease has expired, and workers whose rescue has begun. A null namespace means
-- all.
select id from worker
where (rescued or boot <> :boot or expires_at <= :monotonic_seconds)
  and (:namespace is null or namespace = :namespace)
order by id

-- name: find_local_workers(boot, namespace)
-- Workers of this machine with a life lock, which shows a death before the lease expires.
select id from worker
where has_life and boot = :boot and (:namespace is null or namespace = :namespace) order by id

-- name: mark_rescued(worker)
-- From here on the worker can neither renew nor claim: it may have lost a job already.
update worker set rescued = 1 where id = :worker

-- name: find_orphaned_jobs(limit)
-- Running jobs whose worker has no row.
select id, claim_no, retried, losses, worker from job
where state = 3 and not exists (select 1 from worker where worker.id = job.worker)
limit :limit
