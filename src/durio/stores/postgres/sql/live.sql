-- Notifications: wakeups of workers, and subscribers of live events.

-- name: notify(channel, payloads)
-- only here: SQLite wakes workers through sockets.
-- In a transaction of its own without a flush: a notification holds one lock of the whole
-- database until its commit is done, and a wakeup need not be durable.
with hint as materialized (select set_config('synchronous_commit', 'off', true))
select pg_notify(:channel::text, n.payload)
from hint cross join unnest(:payloads::text[]) n(payload)

-- name: notify_in_transaction(channel, payloads)
-- only here: SQLite wakes workers through sockets.
-- In the caller's own transaction. The server sends equal payloads of a transaction once.
select pg_notify(:channel::text, n.payload) from unnest(:payloads::text[]) n(payload)

-- name: poll_worker(worker, first, end)
-- only here: SQLite wakes workers through sockets.
-- For a worker that gets no notifications: its newest open command, the number of requests to
-- cancel, paused lanes, and lanes with ready jobs. It jumps from lane to lane, up to
-- the number of lanes that a worker claims from.
with recursive busy (name, place) as (
  (
    select r.lane, 1 from {schema}.ready r
    where r.lane >= :first::text and r.lane < :end::text order by r.lane limit 1
  )
  union all
  select (
    select r.lane from {schema}.ready r
    where r.lane > busy.name and r.lane < :end::text order by r.lane limit 1
  ), busy.place + 1
  from busy where busy.name is not null and busy.place < 1000
)
select
  (select max(c.name) from (
     select r.name from {schema}.record r
     where r.kind = any(array['command:' || :worker::int4]) offset 0) c),
  (select count(*) from {schema}.run r where r.worker = :worker::int4 and r.cancel),
  array(select q.name from {schema}.queue q
        where q.paused and q.name >= :first::text and q.name < :end::text order by q.name),
  array(select b.name from busy b where b.name is not null)

-- name: find_subscribers(own_name, now)
-- only here: SQLite's subscribers are sockets.
-- Whether another process subscribes to live events.
select l.name from {schema}.lease l
where starts_with(l.name, 'ear:') and l.name <> :own_name::text
  and l.expires_at > coalesce(:now::float8, extract(epoch from clock_timestamp())::float8)
limit 1

-- name: keep_subscriber(name, seconds, now)
-- only here: SQLite's subscribers are sockets.
-- A process that was killed while it subscribed leaves its row behind: such rows are deleted
-- 60 seconds after they expire.
with clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
), gone as (
  delete from {schema}.lease l using clock
  where starts_with(l.name, 'ear:') and l.name <> :name::text
    and l.expires_at < clock.now - 60
)
insert into {schema}.lease (name, holder, token, expires_at)
select :name::text, 0, 0, clock.now + :seconds::float8 from clock
on conflict (name) do update set expires_at = excluded.expires_at

-- name: drop_subscriber(name)
-- only here: SQLite's subscribers are sockets.
delete from {schema}.lease l where l.name = :name::text
