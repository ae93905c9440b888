-- Workers, their leases, and what they publish when they register. Leases are judged by the
-- monotonic clock of one boot: a lease of another boot has expired.

-- name: register_worker(namespace, queues, info, boot, expires_at)
insert into worker (namespace, queues, info, boot, expires_at, has_bell, has_life, protocol)
values (:namespace, :queues, :info, :boot, :expires_at, 0, 0, 2)
returning id

-- name: set_worker_flags(worker, has_wakeup, has_life)
-- only here: a PostgreSQL worker has no wakeup socket, and names its life mark in `info`.
-- Called in the transaction that registers, once the wakeup socket and the life lock of the
-- new id exist.
update worker set has_bell = :has_wakeup, has_life = :has_life where id = :worker

-- name: renew_worker(worker, expires_at, boot, vitals)
-- Never inserts: a rescued worker stays rescued.
update worker set expires_at = :expires_at, boot = :boot, vitals = coalesce(:vitals, vitals)
where id = :worker and not rescued and boot = :boot
returning namespace

-- name: compare_renewals(worker)
-- only here: on PostgreSQL other workers may renew while one cannot reach the server.
-- No row: the lease was taken. -1e999 (minus infinity): there is no other worker.
select coalesce(max(other.expires_at) - mine.expires_at, -1e999)
from worker mine left join worker other
  on other.namespace = mine.namespace and other.id <> mine.id and other.boot = mine.boot
    and not other.rescued
where mine.id = :worker and not mine.rescued
group by mine.id

-- name: find_cancel_requests(worker)
-- only here: PostgreSQL reads these in the statement that renews.
-- Running jobs of this worker that should be cancelled.
select id, claim_no from job where state = 3 and worker = :worker and cancel

-- name: find_paused_lanes(first, end)
-- only here: PostgreSQL reads these in the statement that renews.
select name from queue where paused and name >= :first and name < :end

-- name: delete_worker(worker)
delete from worker where id = :worker returning id

-- name: find_held_jobs(worker, limit)
-- Called when a worker leaves or is rescued.
select id, claim_no, retried, losses from job
where state = 3 and worker = :worker
order by seq limit :limit

-- name: take_lease(name, holder, boot, now, expires_at)
-- A named lease, for leaders. The token grows with every change of the holder. Times are
-- monotonic seconds. A holder that has left or was rescued leads no more.
insert into lease (name, holder, token, boot, expires_at)
values (:name, :holder, 1, :boot, :expires_at)
on conflict (name) do update
set holder = :holder, token = token + (holder <> :holder), boot = :boot,
  expires_at = :expires_at
where holder = :holder or boot <> :boot or expires_at <= :now
  or not exists (select 1 from worker where id = lease.holder and not rescued)
returning token

-- name: find_workers_to_wake(namespace)
-- only here: PostgreSQL wakes workers with NOTIFY.
-- Workers with a wakeup socket. `queues` is a JSON list; null means every queue.
select id, queues from worker where namespace = :namespace and has_bell and not rescued

-- name: find_old_workers(namespace, protocol, boot, monotonic_seconds)
-- Workers with a valid lease that know less than this protocol.
select json_extract(info, '$.name') from worker
where namespace = :namespace and protocol < :protocol and boot = :boot
  and expires_at > :monotonic_seconds and not rescued

-- name: require_protocol(namespace, protocol)
insert into protocol (namespace, required) values (:namespace, :protocol)
on conflict (namespace) do update set required = max(required, excluded.required)
