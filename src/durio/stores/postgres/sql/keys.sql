-- Uniqueness keys.
--
-- Lock order of an enqueue: guarded queues, rows of waiting holders (`lock_holders`), then keys in order
-- (`lock_keys`).

-- name: find_holder_lanes(keys)
-- only here: SQLite has one writer and needs no locks.
-- The lanes of the jobs that hold these keys, before anything is locked: holders may change.
-- A join by `any(array[...])` is always an index probe (statements.py).
select distinct j.lane
from {schema}.uniq u join {schema}.job j on j.id = any(array[u.id])
where u.key = any(:keys::bytea[])

-- name: lock_holders(keys)
-- only here: SQLite has one writer and needs no locks.
-- Locks the lane rows of waiting holders: from here on no other transaction claims or cancels
-- them. When the keys are locked later, other jobs may hold them.
-- A join by `any(array[...])` is always an index probe (statements.py).
with holders as materialized (
  select j.id, j.lane, j.rank, j.run_at
  from {schema}.uniq u join {schema}.job j on j.id = any(array[u.id])
  where u.key = any(:keys::bytea[])
  order by u.id
),
locked_ready as materialized (
  select holders.id from holders join {schema}.ready r
    on r.lane = any(array[holders.lane]) and r.rank = holders.rank and r.id = coalesce(
      (select k.id from {schema}.ready as k where k.job = holders.id), holders.id
    )
  for update of r
),
locked_scheduled as materialized (
  select s.id from holders join {schema}.sched s
    on s.lane = any(array[holders.lane]) and s.run_at = holders.run_at and s.id = holders.id
  for update of s
)
select id from locked_ready union all select id from locked_scheduled

-- name: lock_keys(keys, ids, modes, digests, untils)
-- only here: SQLite has one writer and needs no locks.
-- Takes the keys that are free and locks the others. All transactions use the order of the
-- keys. `where false` writes nothing: such a row is locked and not returned.
insert into {schema}.uniq as u (key, id, mode, digest, until)
select k.key, k.id, k.mode, k.digest, k.until
from unnest(:keys::bytea[], :ids::uuid[], :modes::int2[], :digests::bytea[], :untils::float8[])
  k (key, id, mode, digest, until)
order by k.key
on conflict (key) do update set mode = u.mode where false
returning u.key

-- name: read_keys(keys)
-- only here: after `lock_keys`; SQLite reads key and holder by `find_key_holder`.
select u.key, u.id, u.mode, u.digest, u.until
from {schema}.uniq u where u.key = any(:keys::bytea[])

-- name: find_holder_states(ids)
-- only here: SQLite reads key and holder by `find_key_holder`.
-- Which of these jobs are stored: id, is live, is running. A cancelled job no longer holds its
-- key and is left out.
select b.id, true, (select 1 from {schema}.run as r where r.id = b.id) is not null
from {schema}.job as b where b.id = any(:ids::uuid[])
union all
select id, false, false from {schema}.kept where id = any(:ids::uuid[]) and state <> 6
union all
select id, false, false from {schema}.hist where id = any(:ids::uuid[])

-- name: take_key(keys, ids, modes, digests, untils)
-- Gives keys to new holders. The caller has locked their rows.
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.uniq u
set id = k.id, mode = k.mode, digest = k.digest, until = k.until
from unnest(:keys::bytea[], :ids::uuid[], :modes::int2[], :digests::bytea[], :untils::float8[])
  k (key, id, mode, digest, until)
where u.key = any(array[k.key])

-- name: free_key(keys, ids)
-- Only the holder frees its key: a successor may own it by now. A job has one key, so it is
-- enough that its id is among the ids. A key that another transaction has locked is skipped:
-- that transaction may be long. The holder is final then, and admission.py treats such a key
-- as free.
with freed as materialized (
  select u.key from {schema}.uniq as u
  where u.key = any(:keys::bytea[]) and u.id = any(:ids::uuid[])
  for update skip locked
)
delete from {schema}.uniq as u where u.key = any(array(select f.key from freed as f))

-- name: lock_next_keys(after, limit)
-- only here: in SQLite a key cannot be locked when its holder frees it.
-- Locks those of the next `limit` keys that have no window, except keys that another
-- transaction has locked. Returns them with the last key read, or an empty one at the end.
-- Keys with a window expire by themselves and may be many. They are not locked but counted,
-- so that one call never reads more than `limit` keys.
with next_keys as materialized (
  select u.key, u.until from {schema}.uniq as u
  where u.key > :after::bytea
  order by u.key
  limit :limit::int4
),
locked_keys as materialized (
  select u.key from {schema}.uniq as u
  where u.key = any(array(select next_keys.key from next_keys where next_keys.until is null))
    and u.until is null
  for update skip locked
)
select array(select locked_keys.key from locked_keys), coalesce(
  (select next_keys.key from next_keys order by next_keys.key offset :limit::int4 - 1),
  ''::bytea
)

-- name: free_unused_keys(keys)
-- only here: see `lock_next_keys`.
-- Frees those of these locked keys whose holder is final and could not free them itself.
delete from {schema}.uniq as u
where u.key = any(:keys::bytea[])
  and (select 1 from {schema}.job as b where b.id = u.id) is null
returning 1
