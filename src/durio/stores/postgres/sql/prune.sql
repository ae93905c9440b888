-- Final jobs: how they are removed.
--
-- `hist` has the done jobs that stay for the common retention, in one partition per day.
-- A partition is dropped whole. `kept` has every other final job.

-- name: prune_aged(now, limit)
-- Not for dead jobs: `prune_dead` removes these.
delete from {schema}.kept
where id = any(array(
  select k.id from {schema}.kept as k
  where k.state <> 5 and k.gone_at <= :now::float8
  order by k.gone_at
  limit :limit::int4
  for update skip locked
))
returning 1

-- name: keep_done(ids, gone_at, bucket, keep_count)
-- `+ 0` keeps the planner from another index (statements.py).
update {schema}.kept set gone_at = :gone_at::float8, bucket = :bucket::text,
  keep_count = :keep_count::int4
where id = any(:ids::uuid[]) and state + 0 = 4

-- name: prune_dead(now, limit, dead_count)
-- Dead jobs past their age that are not among the newest `dead_count`. Looking at the oldest
-- is enough: a job that died earlier expires earlier. Only rows to be deleted are locked, and
-- they are found by id: a join by `any(array[...])` is always an index probe, and `+ 0` keeps
-- the planner from another index (statements.py).
with
oldest as materialized (
  select k.id, k.finished_at, k.gone_at from {schema}.kept as k
  where k.state = 5
  order by k.finished_at
  limit 2 * :limit::int4
),
newest as materialized (
  select k.finished_at from {schema}.kept as k
  where k.state = 5 and :dead_count::int4 > 0
  order by k.finished_at desc
  limit 1 offset greatest(:dead_count::int4 - 1, 0)
)
delete from {schema}.kept
where id = any(array(
  select k.id from oldest as o join {schema}.kept as k on k.id = any(array[o.id])
  where o.gone_at <= :now::float8 and k.state + 0 = 5
    and (:dead_count::int4 = 0 or o.finished_at < (select n.finished_at from newest as n))
  order by o.finished_at
  limit :limit::int4
  for update of k skip locked
))
returning 1

-- name: next_bucket(after)
-- One index probe per bucket, however many jobs it holds.
select k.bucket from {schema}.kept as k where k.bucket > :after::text order by k.bucket limit 1

-- name: prune_bucket(bucket, limit, now)
-- The newest job of a bucket says how many are kept. A job that holds a key is also kept
-- until the window of the key ends. Only rows to be deleted are locked, and they are found by
-- id: a join by `any(array[...])` is always an index probe, and `coalesce` keeps the planner
-- from other indexes (statements.py).
with old as materialized (
  select o.id from {schema}.kept as o
  where o.bucket = :bucket::text
  order by o.finished_at desc, o.id desc
  limit :limit::int4
  offset (
    select n.keep_count from {schema}.kept as n
    where n.bucket = :bucket::text
    order by n.finished_at desc, n.id desc limit 1
  )
)
delete from {schema}.kept
where id = any(array(
  select k.id from old join {schema}.kept as k on k.id = any(array[old.id])
  where coalesce(k.bucket, '') = :bucket::text and (
    select 1 from {schema}.uniq as u
    where u.key = k.ukey and u.id = k.id and coalesce(u.until, 0) > :now::float8
  ) is null
  for update of k skip locked
))
returning 1

-- name: prune_keys(now, limit)
-- A window lasts at least until its job is final. No `not exists`: the planner may turn it
-- into a join that scans a whole table.
delete from {schema}.uniq
where key = any(array(
  select u.key from {schema}.uniq as u
  where u.until <= :now::float8
    and (select 1 from {schema}.job as b where b.id = u.id) is null
  order by u.until
  limit :limit::int4
  for update skip locked
))
returning 1

-- name: prune_repeated(now, limit)
-- only here: SQLite has no marks of repeated enqueues.
-- Marks of enqueues that were sent twice: after this time no first try can still arrive.
delete from {schema}.repeated
where id = any(array(
  select r.id from {schema}.repeated as r
  where r.until <= :now::float8
  order by r.id
  limit :limit::int4
  for update skip locked
))

-- name: prune_done(finished_until, limit, last_id)
-- only here: SQLite keeps done jobs in the same table (`prune_aged`).
-- Row by row, where partitions cannot be dropped.
delete from {schema}.hist
where finished_at <= :finished_until::float8 and id = any(array(
  select h.id from {schema}.hist as h
  where h.id <= :last_id::uuid and h.finished_at <= :finished_until::float8
  order by h.id
  limit :limit::int4
))
returning 1

-- name: prune_default_partition(finished_until, limit, last_id)
-- only here: SQLite has no partitions.
-- Jobs that ended on a day whose partition was not created in time.
delete from {schema}.hist_default
where finished_at <= :finished_until::float8 and id = any(array(
  select h.id from {schema}.hist_default as h
  where h.id <= :last_id::uuid and h.finished_at <= :finished_until::float8
  order by h.id
  limit :limit::int4
))
returning 1

-- name: read_partitions(now)
-- only here: SQLite has no partitions.
-- The partitions of `hist`, with the time and whether this role may change them.
select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8),
  pg_has_role(h.relowner, 'usage') and has_schema_privilege(h.relnamespace, 'create'),
  c.relname::text, greatest(c.reltuples, 0)::int8
from pg_class as h
join pg_inherits as i on i.inhparent = h.oid
join pg_class as c on c.oid = i.inhrelid
where h.oid = '{schema}.hist'::regclass

-- name: measure_partition(name)
-- only here: SQLite has no partitions.
-- Size in bytes; null: there is no such partition.
select pg_relation_size(to_regclass('{schema}.' || :name::text))

-- name: create_partition
-- only here: SQLite has no partitions.
-- Created as a table of its own and attached later: the lock of the parent table is then
-- held only for a moment.
create table {schema}.{day} (
  like {schema}.hist including defaults,
  check (finished_at >= {first} and finished_at < {next})
)

-- name: lock_default_partition
-- only here: SQLite has no partitions.
lock table {schema}.hist_default in access exclusive mode

-- name: move_to_partition
-- only here: SQLite has no partitions.
-- Jobs of a day that ended before its partition was created.
with moved as (
  delete from {schema}.hist_default
  where finished_at >= {first} and finished_at < {next}
  returning *
)
insert into {schema}.{day} select * from moved

-- name: attach_partition
-- only here: SQLite has no partitions.
alter table {schema}.hist attach partition {schema}.{day}
for values from ({first}) to ({next})

-- name: count_partition
-- only here: SQLite has no partitions.
select count(*) from {schema}.{day}

-- name: drop_partition
-- only here: SQLite has no partitions.
drop table {schema}.{day}
