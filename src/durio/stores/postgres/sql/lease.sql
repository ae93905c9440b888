-- Workers and their leases, leadership, and what workers publish about tasks.

-- name: register_worker(namespace, queues, info, seconds, now)
insert into {schema}.worker (namespace, queues, info, expires_at, protocol)
values (:namespace::text, :queues::text, :info::text, :seconds::float8 + coalesce(
  :now::float8, extract(epoch from clock_timestamp())::float8
), 2)
returning id

-- name: renew_worker(worker, seconds, now, vitals)
-- Never inserts: a rescued worker stays dead. Returns the running jobs with a request to
-- cancel, and the paused lanes of the namespace. `offset 0`: first the worker's own jobs are
-- selected, then they are sorted. Without it the planner may scan all running jobs in order.
update {schema}.worker as w
set vitals = coalesce(:vitals::text, w.vitals), expires_at = :seconds::float8 + coalesce(
  :now::float8, extract(epoch from clock_timestamp())::float8
)
where w.id = :worker::int4 and not w.rescued
returning
  array(
    select c.id from (
      select r.id from {schema}.run as r where r.worker = w.id and r.cancel offset 0
    ) as c order by c.id
  ),
  array(
    select c.claim_no from (
      select r.id, r.claim_no from {schema}.run as r
      where r.worker = w.id and r.cancel offset 0
    ) as c order by c.id
  ),
  array(
    select q.name from {schema}.queue as q
    where q.paused and starts_with(q.name, w.namespace || ':')
  )

-- name: delete_worker(workers)
delete from {schema}.worker where id = any(:workers::int4[]) returning id

-- name: find_held_jobs(workers, limit)
-- The jobs that these workers hold, worker by worker; `limit` null means all. `offset 0`: the
-- jobs are found through their worker. By id the planner would scan those of all workers.
select r.worker, r.id
from unnest(:workers::int4[]) as w (id)
cross join lateral (
  select h.worker, h.id from {schema}.run as h where h.worker = w.id offset 0
) as r
order by r.worker, r.id
limit :limit::int4

-- name: lock_held_jobs(workers, ids)
-- only here: SQLite has one writer and needs no locks.
-- Waits for transactions that finish one of these jobs right now.
-- A join by `any(array[...])` is always an index probe (statements.py). `+ 0` keeps the
-- planner from the index by worker.
select r.id, r.claim_no, b.retried, b.losses, r.worker
from {schema}.run as r join {schema}.job as b on b.id = any(array[r.id])
where r.worker + 0 = any(:workers::int4[]) and r.id = any(:ids::uuid[])
order by r.id
for update of r

-- name: take_lease(name, worker, seconds, now)
-- Leadership: takes or renews the lease if it is free, expired or already held by this worker.
-- A holder that has left or was rescued leads no more.
insert into {schema}.lease as l (name, holder, token, expires_at)
values (:name::text, :worker::int4, 1, :seconds::float8 + coalesce(
  :now::float8, extract(epoch from clock_timestamp())::float8
))
on conflict (name) do update
set holder = excluded.holder, token = l.token + (l.holder <> excluded.holder)::int4,
  expires_at = excluded.expires_at
where l.holder = excluded.holder or l.expires_at <= excluded.expires_at - :seconds::float8
  or not exists (
    select 1 from {schema}.worker as w where w.id = any(array[l.holder]) and not w.rescued
  )
returning token

-- name: find_old_workers(namespace, protocol, now)
-- Workers with a valid lease that know less than this protocol.
select w.info::json ->> 'name' from {schema}.worker w
where w.namespace = :namespace::text and w.protocol < :protocol::int2 and not w.rescued
  and w.expires_at > coalesce(:now::float8, extract(epoch from clock_timestamp())::float8)

-- name: read_protocol(namespace)
-- only here: SQLite has one writer and needs no look before the lock.
select p.required from {schema}.protocol p where p.namespace = :namespace::text

-- name: lock_registrations()
-- only here: SQLite has one writer.
-- Waits until registrations and renewals in progress have ended.
lock table {schema}.worker in share row exclusive mode

-- name: require_protocol(namespace, protocol)
insert into {schema}.protocol as p (namespace, required)
values (:namespace::text, :protocol::int2)
on conflict (namespace) do update set required = greatest(p.required, excluded.required)
