-- Logs: appending, reading, and jobs that wait. The functions are in migrations/0003_logs.sql
-- and 0006_log_heads.sql.

-- name: append_entries(logs, tags, ttls, states, jobs, uids, bodies, now, is_patient)
-- only here: SQLite has one writer and appends entry by entry.
select {schema}.append_entries_1(:logs::text[], :tags::int8[], :ttls::float8[],
  :states::int2[], :jobs::uuid[], :uids::text[], :bodies::bytea[], :now::float8,
  :is_patient::bool)

-- name: defer_entries(logs, tags, ttls, states, jobs, uids, bodies)
-- only here: SQLite has one writer.
-- For a transaction that may be long: `settle_logs`, or the next append, appends them.
insert into {schema}.deferred (log, tag, ttl, state, job, uid, body)
select u.log, u.tag, u.ttl, u.state, u.job, u.uid, u.body
from unnest(:logs::text[], :tags::int8[], :ttls::float8[], :states::int2[], :jobs::uuid[],
  :uids::text[], :bodies::bytea[]) with ordinality
  as u (log, tag, ttl, state, job, uid, body, place)
order by u.place

-- name: settle_logs(limit, now)
-- only here: SQLite finds marked logs by `find_marked_logs`.
select {schema}.settle_logs_1(:limit::int4, :now::float8)

-- name: read_lengths(logs)
-- A job that waits creates the head of its log: without entries there is no log.
select name, length from {schema}.grown_log where name = any(:logs::text[]) and length > 0

-- name: read_entries(log, start, limit)
select off, at, tag, state, job, uid, body from {schema}.entry
where log = :log::text and off >= :start::int8 order by off limit :limit::int8

-- name: read_logs(logs, limit)
-- only here: SQLite reads log by log, without a round trip.
select u.log, e.off, e.at, e.tag, e.state, e.job, e.uid, e.body
from unnest(:logs::text[]) as u (log)
cross join lateral (
  select r.off, r.at, r.tag, r.state, r.job, r.uid, r.body from {schema}.entry as r
  where r.log = u.log order by r.off limit :limit::int8
) as e
order by u.log, e.off

-- name: trim_log(log, before)
-- The length of a log without its newest entries is in its head.
with counted as (
  update {schema}.log as l set length = g.length
  from {schema}.grown_log as g
  where l.name = :log::text and g.name = :log::text and l.length < g.length
    and g.length <= :before::int8
)
delete from {schema}.entry where log = :log::text and off < :before::int8

-- name: lock_logs(logs)
-- only here: SQLite has one writer and needs no locks.
-- A statement of its own: the next one sees the entries that this one waited for.
select name from {schema}.log where name = any(:logs::text[]) order by name for update

-- name: drop_log(logs)
-- The caller has locked these logs. Rows without a tag are about jobs that wait on.
with entries as (delete from {schema}.entry where log = any(:logs::text[])),
deferred_entries as (
  delete from {schema}.deferred where log = any(:logs::text[]) and tag is not null
)
delete from {schema}.log where name = any(:logs::text[])

-- name: find_expired_logs(now, limit)
-- Locks them; logs that another transaction has locked are left for the next call.
select name from {schema}.log where expires_at <= :now::float8
order by expires_at limit :limit::int8
for update skip locked

-- name: delete_entries(log, limit)
delete from {schema}.entry where ctid = any(array(
  select e.ctid from {schema}.entry as e where e.log = :log::text
  order by e.off limit :limit::int8
))
returning 1

-- name: insert_wait(logs, aboves, ids, delays, run_ats)
-- After the insert of blocked jobs.
insert into {schema}.waits (log, above, id, delay, run_at)
select u.log, u.above, u.id, u.delay, u.run_at
from unnest(:logs::text[], :aboves::int8[], :ids::uuid[], :delays::float8[],
  :run_ats::float8[]) as u (log, above, id, delay, run_at)

-- name: stop_waiting(logs, aboves, ids)
-- Blocked jobs that are cancelled.
-- A join by `any(array[...])` is always an index probe (statements.py).
delete from {schema}.waits as w
using unnest(:logs::text[], :aboves::int8[], :ids::uuid[]) as u (log, above, id)
where w.log = any(array[u.log]) and w.above = u.above and w.id = u.id

-- name: read_ties(id)
-- Of a live job, and whether it is blocked. The job is locked before its row in `waits`.
select run_at is not null and run_at = 'infinity', ties from {schema}.job where id = :id::uuid
for update

-- name: lock_kept_ties(id)
-- only here: SQLite has one table of jobs (`read_ties`).
-- Of a cancelled job, for update. `+ 0` keeps the planner from another index.
select ties from {schema}.kept where id = :id::uuid and state + 0 = 6 for update

-- name: write_ties(ids, ties)
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.job as j set ties = u.ties
from unnest(:ids::uuid[], :ties::text[]) as u (id, ties)
where j.id = any(array[u.id])

-- name: write_kept_ties(ids, ties)
-- only here: SQLite has one table of jobs (`write_ties`).
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.kept as k set ties = u.ties
from unnest(:ids::uuid[], :ties::text[]) as u (id, ties)
where k.id = any(array[u.id])

-- name: extend_wait(log, above, id, entries)
update {schema}.waits set above = above + :entries::int8
where log = :log::text and above = :above::int8 and id = :id::uuid
returning above

-- name: find_lanes(ids)
-- only here: SQLite has one writer and needs no locks.
-- The lanes of running jobs, which do not change.
select distinct lane from {schema}.job where id = any(:ids::uuid[])
