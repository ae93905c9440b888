-- Bounds of queues: declared maximum sizes, depth, and the soft bound.
--
-- A queue is guarded when it has a bound, a mark of the soft bound, or is closed. Its row in
-- `queue` is locked by name, before all other locks. Under a bound `is_over` is 0, or -1
-- when the depth has to be counted again.

-- name: read_bound(lanes)
-- Declared bounds, whether each is a default, and whether its depth is not counted yet.
select q.name, q.maxsize, q.is_default,
  q.is_over < 0 and coalesce(q.hand_maxsize, q.maxsize) >= 0
from {schema}.queue q where q.name = any(:lanes::text[])

-- name: declare_bound(lanes, maxsizes, is_default)
-- A default never replaces a bound that was chosen explicitly.
insert into {schema}.queue as q (name, maxsize, is_default)
select d.lane, d.maxsize, :is_default::bool and d.maxsize is not null
from unnest(:lanes::text[], :maxsizes::int8[]) d (lane, maxsize)
order by d.lane
on conflict (name) do update set maxsize = excluded.maxsize, is_default = excluded.is_default
where not :is_default::bool or q.maxsize is null or q.is_default

-- name: override_bound(lane, maxsize)
-- A bound set by an operator. It takes precedence over the declared one.
insert into {schema}.queue (name, hand_maxsize) values (:lane::text, :maxsize::int8)
on conflict (name) do update set hand_maxsize = excluded.hand_maxsize

-- name: lock_guard(lanes)
-- only here: SQLite has one writer and needs no locks.
-- Locks the guarded queues among these lanes, by name, before all other locks. The last
-- column tells whether callers' transactions have added jobs that are not counted yet.
select q.name, nullif(coalesce(q.hand_maxsize, q.maxsize), -1), q.depth,
  greatest(q.is_over, 0), q.closed,
  exists (select 1 from {schema}.entered as e where e.lane = q.name)
from {schema}.queue q
where q.name = any(:lanes::text[])
  and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
order by q.name
for no key update

-- name: read_guard(lanes)
-- The columns of `lock_guard`, without a lock. The depth includes jobs of callers'
-- transactions that are not counted yet.
select q.name, nullif(coalesce(q.hand_maxsize, q.maxsize), -1), q.depth + coalesce((
    select sum(e.jobs)::int8 from {schema}.entered as e where e.lane = q.name
  ), 0), greatest(q.is_over, 0), q.closed
from {schema}.queue q
where q.name = any(:lanes::text[])
  and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)

-- name: change_depth(lanes, changes)
-- Only a queue with a bound of its own is counted.
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.queue q
set depth = q.depth + c.jobs
from unnest(:lanes::text[], :changes::int8[]) c (lane, jobs)
where q.name = any(array[c.lane]) and coalesce(q.hand_maxsize, q.maxsize) >= 0

-- name: count_depth(lanes, mark)
-- Counts the waiting jobs when a bound takes effect; blocked ones are rows of `sched`, too.
-- `mark` is -1 when the depth must be counted again.
with cleared as (delete from {schema}.entered where lane = any(:lanes::text[]))
update {schema}.queue q
set is_over = :mark::int8, depth = (select count(*) from {schema}.ready r where r.lane = q.name)
  + (select count(*) from {schema}.sched s where s.lane = q.name)
where q.name = any(:lanes::text[]) and coalesce(q.hand_maxsize, q.maxsize) >= 0

-- name: find_open_transactions
-- only here: SQLite has one writer; no open transaction has read an old bound.
-- Transactions that have read `queue` and are still open: what they read may be outdated.
select l.virtualtransaction
from pg_catalog.pg_locks l
where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid()
  and l.relation = (select q.tableoid from {schema}.queue q limit 1)
  and l.database = (
    select d.oid from pg_catalog.pg_database d where d.datname = current_database()
  )
  and l.mode in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')

-- name: read_uncounted_queues(first, end)
-- only here: see `find_open_transactions`.
-- Queues of a range whose bound was committed and whose depth was not counted since then.
select q.name from {schema}.queue q
where (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  and q.is_over < 0 and coalesce(q.hand_maxsize, q.maxsize) >= 0
  and q.name >= :first::text and q.name < :end::text

-- name: record_entered(lanes, jobs)
-- only here: SQLite's callers write under the one writer lock.
-- Jobs of a caller's transaction. The next transaction that locks these queues counts them.
insert into {schema}.entered (lane, jobs)
select c.lane, c.jobs from unnest(:lanes::text[], :jobs::int8[]) c (lane, jobs)

-- name: find_entered_lanes(first, end)
-- only here: see `record_entered`.
select distinct e.lane from {schema}.entered e
where e.lane >= :first::text and e.lane < :end::text
order by e.lane
limit 1000

-- name: count_entered(lanes)
-- only here: see `record_entered`.
-- The caller has locked those of these queues that have a bound. Other queues are not
-- counted; their rows in `entered` are removed too.
with removed as (
  delete from {schema}.entered e where e.lane = any(:lanes::text[]) returning e.lane, e.jobs
),
sums as materialized (
  select removed.lane, sum(removed.jobs)::int8 as jobs from removed group by removed.lane
)
update {schema}.queue q set depth = q.depth + sums.jobs
from sums
where q.name = sums.lane and coalesce(q.hand_maxsize, q.maxsize) >= 0
returning q.name, q.depth

-- name: has_few_jobs(jobs)
-- Whether the lanes cannot hold as many as `jobs` jobs. It uses the sizes of the tables
-- alone: no row in them is smaller than 48 bytes.
select (pg_relation_size('{schema}.ready') + pg_relation_size('{schema}.sched')) / 48
  < :jobs::int8

-- name: has_workers(namespaces, now)
-- Those of these namespaces that have a worker with a valid lease.
select distinct w.namespace
from {schema}.worker w
where w.namespace = any(:namespaces::text[])
  and w.expires_at > coalesce(:now::float8, extract(epoch from clock_timestamp())::float8)

-- name: read_soft_queues(first, end)
-- Queues of a range without a bound of their own, with the mark of the soft bound. An
-- operator who has set "no bound" has switched off the soft bound too.
select q.name, q.is_over from {schema}.queue q
where q.name >= :first::text and q.name < :end::text
  and q.hand_maxsize is null and q.maxsize is null

-- name: read_marked_queues(first, end)
-- Queues of a range that are marked as over the soft bound.
select q.name from {schema}.queue q
where (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  and q.is_over > 0 and q.name >= :first::text and q.name < :end::text

-- name: count_waiting(lanes, limit)
-- Reads index entries only, and at most `limit` per lane and table.
select n.name,
  (select count(*) from (
    select 1 from {schema}.ready r where r.lane = n.name limit :limit::int8) x)
  + (select count(*) from (
    select 1 from {schema}.sched s where s.lane = n.name limit :limit::int8) y)
from unnest(:lanes::text[]) n (name)

-- name: mark_over(lanes, marks, depths)
-- Sets or clears marks of the soft bound, unless the queue has got its own bound meanwhile.
-- A join by `any(array[...])` is always an index probe (statements.py).
with locked_queues as materialized (
  select q.name from {schema}.queue q where q.name = any(:lanes::text[])
  order by q.name for no key update
)
update {schema}.queue q
set is_over = c.mark, depth = c.depth
from locked_queues
  join unnest(:lanes::text[], :marks::int8[], :depths::int8[]) c (lane, mark, depth)
  on c.lane = locked_queues.name
where q.name = any(array[locked_queues.name]) and coalesce(q.hand_maxsize, q.maxsize, -1) < 0

-- name: clear_mark(lanes)
-- only here: SQLite clears the mark by `mark_over`.
update {schema}.queue q set is_over = 0
where q.name = any(:lanes::text[]) and q.is_over <> 0
  and coalesce(q.hand_maxsize, q.maxsize, -1) < 0
