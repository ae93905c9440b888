-- Bounds of queues. A guarded queue has a bound, carries the mark of the soft bound, or is
-- closed. `hand_maxsize` is a bound that an operator has set; -1 there means no bound.
-- State codes: 0 scheduled, 2 ready.

-- name: has_guarded_queue()
-- only here: PostgreSQL reads the guards in the statement that writes.
-- Read once per transaction. Usually the index is empty, and an unguarded queue has no other
-- cost.
select 1 from queue indexed by queue_guarded
where maxsize is not null or hand_maxsize is not null or is_over or closed
limit 1

-- name: read_guard(lane)
-- The guard of one lane, if it has one: the bound that holds, depth, soft mark, closed.
select
  case when hand_maxsize is null then maxsize when hand_maxsize >= 0 then hand_maxsize end,
  depth, is_over, closed
from queue
where name = :lane and (maxsize is not null or hand_maxsize is not null or is_over or closed)

-- name: change_depth(lane, jobs)
-- Called by every change that makes jobs wait or stops them waiting, under a bound.
update queue set depth = depth + :jobs where name = :lane

-- name: count_depth(lane)
-- A bound begins to hold: the waiting jobs are counted.
update queue
set is_over = 0, depth = (select count(*) from job where state = 2 and queue = :lane)
  + (select count(*) from job where state = 0 and queue = :lane)
  + (select count(*) from waits where queue = :lane)
  + (select count(*) from gated where queue = :lane and gate is not null)
  + (select count(*) from gated where queue = :lane and newest is not null)
where name = :lane

-- name: read_bound(lane)
-- The bound that the code has declared.
select maxsize, is_default from queue where name = :lane

-- name: declare_bound(lane, maxsize, is_default)
insert into queue (name, maxsize, is_default) values (:lane, :maxsize, :is_default)
on conflict (name) do update set maxsize = excluded.maxsize, is_default = excluded.is_default

-- name: override_bound(lane, maxsize)
-- An operator's bound overrides the declared one. Null removes it, -1 means no bound.
insert into queue (name, hand_maxsize) values (:lane, :maxsize)
on conflict (name) do update set hand_maxsize = excluded.hand_maxsize

-- name: has_few_jobs(limit)
-- Whether the table holds fewer than `limit` jobs, final ones included. Compares its first
-- and last `seq`, so the cost does not grow with the table.
select coalesce(max(seq), 0) - (select coalesce(min(seq), 1) from job) + 1 < :limit from job

-- name: read_marked_queues(first, end)
-- Queues between two names that carry the mark of the soft bound.
select name from queue indexed by queue_guarded
where (maxsize is not null or hand_maxsize is not null or is_over or closed) and is_over
  and name >= :first and name < :end

-- name: read_soft_queues(first, end)
-- Queues between two names without a bound of their own, and the mark that they carry. Where
-- an operator has said that there is no bound, the soft bound does not hold either.
select name, is_over from queue
where name >= :first and name < :end and hand_maxsize is null and maxsize is null

-- name: count_waiting(lane, limit)
-- Reads index entries only, and at most `limit` of each state.
select (select count(*) from (select 1 from job where state = 2 and queue = :lane limit :limit))
  + (select count(*) from (select 1 from job where state = 0 and queue = :lane limit :limit))
  + (select count(*) from (select 1 from waits where queue = :lane limit :limit))
  + (select count(*) from (
    select 1 from gated where queue = :lane and gate is not null limit :limit
  ))
  + (select count(*) from (
    select 1 from gated where queue = :lane and newest is not null limit :limit
  ))

-- name: mark_over(lane, soft_max, depth)
-- Sets the mark of the soft bound, or clears it with 0.
update queue set is_over = :soft_max, depth = :depth where name = :lane

-- name: has_workers(namespace, boot, monotonic_seconds)
-- The soft mark holds only while a worker is alive that can clear it.
select 1 from worker
where namespace = :namespace and boot = :boot and expires_at > :monotonic_seconds limit 1
