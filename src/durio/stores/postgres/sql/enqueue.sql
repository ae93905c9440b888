-- Storing new jobs.
--
-- The six `enqueue_*` statements do a whole call in one round trip (enqueue_fast.py), and
-- `commit_new` a whole commit (commit_new.py). They write all jobs of it or nothing. The others
-- are the steps of a longer transaction (enqueue_locked.py), for calls that find held keys,
-- full queues or ids that are already stored.
--
-- `queues` are the lanes of the call, each once. `unknown_queues` are those among them that
-- this process has not seen in the store yet.

-- part: came_second
-- Whether a repeat was stored first; without one it is false, and otherwise an error. The table has no
-- pages before the first repeat, and its size, unlike its rows, depends on no snapshot.
-- A call of `check_first` takes 50 us, a quarter of the time in which one job is stored.
pg_relation_size('{schema}.repeated'::regclass) > 0 and not {schema}.check_first

-- name: enqueue_plain(ids, lanes, ranks, tasks, payloads, run_ats, delays, queues, unknown_queues, now, opts)
-- only here: SQLite's writer inserts job by job without a round trip.
-- Jobs without keys: one statement, one round trip. It writes nothing and returns true when
-- a queue is guarded, or when a repeat of the same call was stored first. A repeat that is
-- stored while this statement runs is seen after the insert: `check_first` raises an error,
-- which undoes the insert.
with clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
decision as materialized (
  select exists (
    select 1 from {schema}.queue q
    where q.name = any(:queues::text[])
      and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  ) or (
    exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated p where p.id = any(:ids::uuid[]))
  ) as halts
),
incoming as materialized (
  select u.id, u.lane, u.rank, u.task, u.payload, u.opts, clock.now,
    case when u.run_at is not null then u.run_at
      when u.delay > 0 then clock.now + u.delay end as run_at
  from clock, decision, unnest(
    :ids::uuid[], :lanes::text[], :ranks::int2[], :tasks::text[], :payloads::bytea[],
    :run_ats::float8[], :delays::float8[], :opts::bytea[]
  ) u (id, lane, rank, task, payload, run_at, delay, opts)
  where not decision.halts
),
new_queues as (
  insert into {schema}.queue (name)
  select n.name from decision, unnest(:unknown_queues::text[]) n (name) where not decision.halts
  order by n.name
  on conflict (name) do nothing
),
new_jobs as (
  insert into {schema}.job (id, lane, rank, task, payload, run_at, opts, created_at)
  select incoming.id, incoming.lane, incoming.rank, incoming.task, incoming.payload,
    incoming.run_at, incoming.opts, incoming.now from incoming
  returning 1
),
new_scheduled as (
  insert into {schema}.sched (lane, run_at, id)
  select incoming.lane, incoming.run_at, incoming.id from incoming
  where incoming.run_at > incoming.now
),
new_ready as (
  insert into {schema}.ready (lane, rank, id)
  select incoming.lane, incoming.rank, incoming.id from incoming
  where incoming.run_at is null or incoming.run_at <= incoming.now
)
select case when (select count(*) from new_jobs) > 0 then {came_second}(:ids::uuid[])
  else decision.halts end, clock.now
from decision, clock

-- name: enqueue_ready(ids, lanes, ranks, tasks, payloads, opts, queues, unknown_queues, now)
-- only here: see `enqueue_plain`.
-- `enqueue_plain` for jobs that are all due now.
with decision as materialized (
  select exists (
    select 1 from {schema}.queue q
    where q.name = any(:queues::text[])
      and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  ) or (
    exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated p where p.id = any(:ids::uuid[]))
  ) as halts
),
incoming as materialized (
  select u.id, u.lane, u.rank, u.task, u.payload, u.opts
  from decision, unnest(
    :ids::uuid[], :lanes::text[], :ranks::int2[], :tasks::text[], :payloads::bytea[],
      :opts::bytea[]
  ) u (id, lane, rank, task, payload, opts)
  where not decision.halts
),
new_queues as (
  insert into {schema}.queue (name)
  select n.name from decision, unnest(:unknown_queues::text[]) n (name) where not decision.halts
  order by n.name
  on conflict (name) do nothing
),
new_jobs as (
  insert into {schema}.job (id, lane, rank, task, payload, opts, created_at)
  select incoming.id, incoming.lane, incoming.rank, incoming.task, incoming.payload,
    incoming.opts, t.now
  from (select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now) t,
    incoming
  returning 1
),
new_ready as (
  insert into {schema}.ready (lane, rank, id) select incoming.lane, incoming.rank, incoming.id
  from incoming
)
select case when (select count(*) from new_jobs) > 0 then {came_second}(:ids::uuid[])
  else decision.halts end
from decision

-- name: enqueue_same(ids, lane, rank, task, payloads, opts, queues, unknown_queues, now)
-- only here: see `enqueue_plain`.
-- `enqueue_ready` for jobs that differ only in their arguments, as `enqueue_many` makes them.
with decision as materialized (
  select exists (
    select 1 from {schema}.queue q
    where q.name = any(:queues::text[])
      and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  ) or (
    exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated p where p.id = any(:ids::uuid[]))
  ) as halts
),
incoming as materialized (
  select u.id, u.payload from decision, unnest(:ids::uuid[], :payloads::bytea[]) u (id, payload)
  where not decision.halts
),
new_queues as (
  insert into {schema}.queue (name)
  select n.name from decision, unnest(:unknown_queues::text[]) n (name) where not decision.halts
  order by n.name
  on conflict (name) do nothing
),
new_jobs as (
  insert into {schema}.job (id, lane, rank, task, payload, opts, created_at)
  select incoming.id, :lane::text, :rank::int2, :task::text, incoming.payload, :opts::bytea,
    t.now
  from (select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now) t,
    incoming
  returning 1
),
new_ready as (
  insert into {schema}.ready (lane, rank, id) select :lane::text, :rank::int2, incoming.id
  from incoming
)
select case when (select count(*) from new_jobs) > 0 then {came_second}(:ids::uuid[])
  else decision.halts end
from decision

-- name: enqueue_one(id, lane, rank, task, payload, opts, now)
-- only here: see `enqueue_plain`.
-- `enqueue_same` for one job in a queue that this process knows, without arrays. A repeat that
-- was stored first is found by `check_first`.
with go as materialized (
  select 1
  where not exists (
    select 1 from {schema}.queue q
    where q.name = :lane::text
      and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  )
),
new_job as (
  insert into {schema}.job (id, lane, rank, task, payload, opts, created_at)
  select :id::uuid, :lane::text, :rank::int2, :task::text, :payload::bytea, :opts::bytea,
    coalesce(:now::float8, extract(epoch from clock_timestamp())::float8)
  from go
  returning 1
),
new_ready as (
  insert into {schema}.ready (lane, rank, id)
  select :lane::text, :rank::int2, :id::uuid from go
)
select case when exists (select 1 from new_job) then {came_second}(array[:id::uuid])
  else true end

-- name: enqueue_keyed(ids, lanes, ranks, tasks, payloads, run_ats, delays, keys, key_modes, digests, window_seconds, queues, unknown_queues, now, opts, lock_timeout)
-- only here: see `enqueue_plain`.
-- `enqueue_plain` for jobs of which some have a key. Keys are expected to be free. A job
-- whose key is held is left out, and its place in the call is returned. The statement limits
-- its wait for a key that an open transaction has taken: it is one round trip.
with clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now,
    case when :lock_timeout::text is not null
      then set_config('lock_timeout', :lock_timeout::text, true) end
),
decision as materialized (
  select exists (
    select 1 from {schema}.queue q
    where q.name = any(:queues::text[])
      and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  ) or (
    exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated p where p.id = any(:ids::uuid[]))
  ) as halts
),
incoming as materialized (
  select u.id, u.lane, u.rank, u.task, u.payload, u.opts, u.ukey, u.umode, u.digest, u.n,
    clock.now, clock.now + u.ttl as until,
    case when u.run_at is not null then u.run_at
      when u.delay > 0 then clock.now + u.delay end as run_at
  from clock, decision, unnest(
    :ids::uuid[], :lanes::text[], :ranks::int2[], :tasks::text[], :payloads::bytea[],
    :run_ats::float8[], :delays::float8[], :opts::bytea[], :keys::bytea[], :key_modes::int2[],
    :digests::bytea[], :window_seconds::float8[]
  ) with ordinality
    u (id, lane, rank, task, payload, run_at, delay, opts, ukey, umode, digest, ttl, n)
  where not decision.halts
),
new_queues as (
  insert into {schema}.queue (name)
  select n.name from decision, unnest(:unknown_queues::text[]) n (name) where not decision.halts
  order by n.name
  on conflict (name) do nothing
),
taken_keys as (
  insert into {schema}.uniq (key, id, mode, digest, until)
  select incoming.ukey, incoming.id, incoming.umode, incoming.digest, incoming.until
  from incoming where incoming.ukey is not null
  order by incoming.ukey, incoming.n
  on conflict (key) do nothing
  returning id
),
accepted as materialized (
  select incoming.* from incoming
  where incoming.ukey is null or incoming.id in (select taken_keys.id from taken_keys)
),
new_jobs as (
  insert into {schema}.job (
    id, lane, rank, task, payload, run_at, opts, ukey, umode, created_at
  )
  select accepted.id, accepted.lane, accepted.rank, accepted.task, accepted.payload,
    accepted.run_at, accepted.opts, accepted.ukey, accepted.umode, accepted.now
  from accepted
  returning 1
),
new_scheduled as (
  insert into {schema}.sched (lane, run_at, id)
  select accepted.lane, accepted.run_at, accepted.id from accepted
  where accepted.run_at > accepted.now
),
new_ready as (
  insert into {schema}.ready (lane, rank, id)
  select accepted.lane, accepted.rank, accepted.id from accepted
  where accepted.run_at is null or accepted.run_at <= accepted.now
)
select case when (select count(*) from new_jobs) > 0 then {came_second}(:ids::uuid[])
  else decision.halts end, clock.now, array(
  select incoming.n::int4 from incoming
  where incoming.ukey is not null and incoming.id not in (select taken_keys.id from taken_keys)
)
from decision, clock

-- name: enqueue_bounded(ids, lanes, ranks, tasks, payloads, run_ats, delays, queues, unknown_queues, now, opts)
-- only here: see `enqueue_plain`.
-- `enqueue_plain` for queues that may be guarded. When there is room for all jobs, they are
-- counted under the locks of their queues. Otherwise nothing is written, and the full queue
-- is returned. A full queue is usually detected without a lock: clients try it again and
-- again, and its workers must not wait for them. When jobs of these queues are not counted
-- yet (table `entered`), nothing is written and no full queue is returned.
-- Lock order: rows of `queue` by name, before everything else.
-- A join by `any(array[...])` is always an index probe (statements.py).
with clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
wanted as materialized (
  select u.lane, count(*) as jobs from unnest(:lanes::text[]) u (lane) group by u.lane
),
counted as materialized (
  select not exists (
    select 1 from {schema}.entered o where o.lane = any(:queues::text[])
  ) as is_counted
),
guards_seen as materialized (
  select q.name, nullif(coalesce(q.hand_maxsize, q.maxsize), -1) as bound, q.depth,
    q.is_over, q.closed, wanted.jobs
  from {schema}.queue q join wanted on wanted.lane = q.name
  where q.name = any(:queues::text[])
    and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
),
full_seen as materialized (
  select guards_seen.* from counted, guards_seen
  where counted.is_counted and (
    guards_seen.closed or guards_seen.depth + guards_seen.jobs > guards_seen.bound
    or (guards_seen.bound is null and guards_seen.is_over > 0)
  )
  order by guards_seen.name limit 1
),
guards as materialized (
  select q.name, nullif(coalesce(q.hand_maxsize, q.maxsize), -1) as bound, q.depth,
    q.is_over, q.closed, wanted.jobs
  from {schema}.queue q join wanted on wanted.lane = q.name
  where q.name = any(:queues::text[]) and not exists (select 1 from full_seen)
    and (select counted.is_counted from counted)
    and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  order by q.name
  for no key update of q
),
full_queue as materialized (
  select full_seen.* from full_seen
  union all
  select guards.* from guards
  where guards.closed or guards.depth + guards.jobs > guards.bound
    or (guards.bound is null and guards.is_over > 0)
  limit 1
),
decision as materialized (
  select exists (select 1 from full_queue) or not (select counted.is_counted from counted) or (
    exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated r where r.id = any(:ids::uuid[]))
  ) as halts
),
counted_in as (
  update {schema}.queue q set depth = q.depth + guards.jobs
  from decision, guards
  where q.name = any(array[guards.name]) and guards.bound is not null and not decision.halts
),
incoming as materialized (
  select u.id, u.lane, u.rank, u.task, u.payload, u.opts, clock.now,
    case when u.run_at is not null then u.run_at
      when u.delay > 0 then clock.now + u.delay end as run_at
  from clock, decision, unnest(
    :ids::uuid[], :lanes::text[], :ranks::int2[], :tasks::text[], :payloads::bytea[],
    :run_ats::float8[], :delays::float8[], :opts::bytea[]
  ) u (id, lane, rank, task, payload, run_at, delay, opts)
  where not decision.halts
),
new_queues as (
  insert into {schema}.queue (name)
  select n.name from decision, unnest(:unknown_queues::text[]) n (name) where not decision.halts
  order by n.name
  on conflict (name) do nothing
),
new_jobs as (
  insert into {schema}.job (id, lane, rank, task, payload, run_at, opts, created_at)
  select incoming.id, incoming.lane, incoming.rank, incoming.task, incoming.payload,
    incoming.run_at, incoming.opts, incoming.now from incoming
  returning 1
),
new_scheduled as (
  insert into {schema}.sched (lane, run_at, id)
  select incoming.lane, incoming.run_at, incoming.id from incoming
  where incoming.run_at > incoming.now
),
new_ready as (
  insert into {schema}.ready (lane, rank, id)
  select incoming.lane, incoming.rank, incoming.id from incoming
  where incoming.run_at is null or incoming.run_at <= incoming.now
)
select case when (select count(*) from new_jobs) > 0 then {came_second}(:ids::uuid[])
  else decision.halts end, clock.now, exists (select 1 from guards_seen)
    or exists (select 1 from guards), full_queue.name, full_queue.depth,
  full_queue.bound, full_queue.closed, full_queue.name is not null and exists (
    select 1 from {schema}.job o where o.id = any(:ids::uuid[])
  )
from decision cross join clock left join full_queue on true

-- name: commit_new(ids, lanes, ranks, tasks, payloads, run_ats, delays, opts, ties, wait_logs, wait_aboves, logs, kinds, names, bodies, due_times, ttls, queues, unknown_queues, now)
-- only here: see `enqueue_plain`.
-- New records, and new jobs without keys of which some wait for new logs: a plan. It writes
-- nothing and returns true when a queue is guarded. A record or log that exists is a unique
-- violation, which undoes all. So is a repeat, because the record of its first try exists.
with clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
decision as materialized (
  select exists (
    select 1 from {schema}.queue q
    where q.name = any(:queues::text[])
      and (q.maxsize is not null or q.hand_maxsize is not null or q.is_over > 0 or q.closed)
  ) as halts
),
incoming as materialized (
  select u.id, u.lane, u.rank, u.task, u.payload, u.opts, u.ties, u.log, u.above, u.delay,
    u.run_at as at, clock.now,
    case when u.log is not null then 'infinity' when u.run_at is not null then u.run_at
      when u.delay > 0 then clock.now + u.delay end as run_at
  from clock, decision, unnest(
    :ids::uuid[], :lanes::text[], :ranks::int2[], :tasks::text[], :payloads::bytea[],
    :run_ats::float8[], :delays::float8[], :opts::bytea[], :ties::text[], :wait_logs::text[],
    :wait_aboves::int8[]
  ) u (id, lane, rank, task, payload, run_at, delay, opts, ties, log, above)
  where not decision.halts
),
new_queues as (
  insert into {schema}.queue (name)
  select n.name from decision, unnest(:unknown_queues::text[]) n (name) where not decision.halts
  order by n.name
  on conflict (name) do nothing
),
new_records as (
  insert into {schema}.record (kind, name, body, due_at, expires_at)
  select u.kind, u.name, u.body, u.due_at, clock.now + u.ttl
  from clock, decision, unnest(
    :kinds::text[], :names::text[], :bodies::bytea[], :due_times::float8[], :ttls::float8[]
  ) u (kind, name, body, due_at, ttl)
  where not decision.halts
  returning kind, name, version
),
new_logs as (
  insert into {schema}.log (name)
  select n.name from decision, unnest(:logs::text[]) n (name) where not decision.halts
),
new_jobs as (
  insert into {schema}.job (
    id, lane, rank, task, payload, run_at, opts, ties, created_at
  )
  select incoming.id, incoming.lane, incoming.rank, incoming.task, incoming.payload,
    incoming.run_at, incoming.opts, incoming.ties, incoming.now from incoming
),
new_waits as (
  insert into {schema}.waits (log, above, id, delay, run_at)
  select incoming.log, incoming.above, incoming.id, incoming.delay, incoming.at
  from incoming where incoming.log is not null
),
new_scheduled as (
  insert into {schema}.sched (lane, run_at, id)
  select incoming.lane, incoming.run_at, incoming.id from incoming
  where incoming.run_at > incoming.now
),
new_ready as (
  insert into {schema}.ready (lane, rank, id)
  select incoming.lane, incoming.rank, incoming.id from incoming
  where incoming.run_at is null or incoming.run_at <= incoming.now
)
select decision.halts, clock.now, r.kinds, r.names, r.versions
from decision, clock, (
  select array_agg(n.kind) as kinds, array_agg(n.name) as names,
    array_agg(n.version) as versions
  from new_records as n
) as r

-- name: find_stored_jobs(ids, are_deep)
-- only here: SQLite has one table of jobs and reads a state by id.
-- Finds where these ids are stored. Final jobs are searched only for ids with `deep`, and for ids
-- that a repeat has stored: then this call is the first try, which arrives late. One
-- snapshot for all tables: a job is either live or final in it. No `exists`: see
-- `recheck_repeated`.
with wanted as materialized (
  select i.id,
    i.deep or (select 1 from {schema}.repeated p where p.id = i.id) is not null as deep
  from unnest(:ids::uuid[], :are_deep::bool[]) i (id, deep)
)
select wanted.id, f.state, f.lane, f.created_at, f.has_ties
from wanted cross join lateral (
  select case
      when (select 1 from {schema}.run r where r.id = j.id) is not null then 3
      when (
        select 1 from {schema}.sched s
        where s.lane = j.lane and s.run_at = j.run_at and s.id = j.id
      ) is not null then case when j.run_at = 'infinity' then 1 else 0 end
      else 2 end as state, j.lane, j.created_at, coalesce(
        j.ties::jsonb -> 0 <> 'null' or j.ties::jsonb -> 1 <> '[]', false) as has_ties
  from {schema}.job j where j.id = wanted.id
  union all
  select k.state, k.lane, k.created_at, false from {schema}.kept k
  where wanted.deep and k.id = wanted.id
  union all
  select h.state, h.lane, h.created_at, false from {schema}.hist h
  where wanted.deep and h.id = wanted.id
  union all
  -- Only the mark of the repeat is left.
  select 4, '', 0, false from {schema}.repeated p where p.id = wanted.id
  limit 1
) f

-- name: insert_job(ids, lanes, ranks, tasks, payloads, run_ats, opts, keys, key_modes, ties, now, unknown_queues)
-- New jobs, with or without a key or ties, and the queues that are not stored yet. A job whose
-- id is already stored stays as it is: the caller compares the count. A blocked job is due at
-- infinity.
with incoming as materialized (
  select *
  from unnest(
    :ids::uuid[], :lanes::text[], :ranks::int2[], :tasks::text[], :payloads::bytea[],
    :run_ats::float8[], :opts::bytea[], :keys::bytea[], :key_modes::int2[], :ties::text[]
  ) u (id, lane, rank, task, payload, run_at, opts, ukey, umode, ties)
),
new_queues as (
  insert into {schema}.queue (name)
  select n.name from unnest(:unknown_queues::text[]) n (name) order by n.name
  on conflict (name) do nothing
),
new_jobs as (
  insert into {schema}.job (
    id, lane, rank, task, payload, run_at, opts, ukey, umode, ties, created_at
  )
  select incoming.id, incoming.lane, incoming.rank, incoming.task, incoming.payload,
    incoming.run_at, incoming.opts, incoming.ukey, incoming.umode, incoming.ties, :now::float8
  from incoming order by incoming.id
  on conflict (id) do nothing
  returning id, lane, rank, run_at
),
new_scheduled as (
  insert into {schema}.sched (lane, run_at, id)
  select new_jobs.lane, new_jobs.run_at, new_jobs.id from new_jobs
  where new_jobs.run_at > :now::float8
),
new_ready as (
  insert into {schema}.ready (lane, rank, id)
  select new_jobs.lane, new_jobs.rank, new_jobs.id from new_jobs
  where new_jobs.run_at is null or new_jobs.run_at <= :now::float8
)
select count(*) from new_jobs

-- name: insert_queue(names)
insert into {schema}.queue (name)
select name from unnest(:names::text[]) as u (name) order by name
on conflict (name) do nothing

-- name: rewrite_job(ids, lanes, ranks, tasks, payloads, run_ats, opts, key_modes, ties, now, unknown_queues)
-- Waiting holders of keys get new arguments. Id and claim number stay. A job that was
-- claimed or cancelled meanwhile has no row in `ready` or `sched`: the caller compares the
-- count. They get the gates of the new call: places that they had are returned, to be given
-- back, and the caller lets them enter again.
-- A join by `any(array[...])` is always an index probe (statements.py).
with incoming as materialized (
  select *
  from unnest(
    :ids::uuid[], :lanes::text[], :ranks::int2[], :tasks::text[], :payloads::bytea[],
    :run_ats::float8[], :opts::bytea[], :key_modes::int2[], :ties::text[]
  ) u (id, lane, rank, task, payload, run_at, opts, umode, ties)
),
new_queues as (
  insert into {schema}.queue (name)
  select n.name from unnest(:unknown_queues::text[]) n (name) order by n.name
  on conflict (name) do nothing
),
old_places as materialized (
  select j.id, j.lane, j.rank, j.run_at, j.ties, j.held
  from incoming join {schema}.job j on j.id = any(array[incoming.id])
),
left_ready as (
  delete from {schema}.ready r using old_places
  where r.lane = any(array[old_places.lane]) and r.rank = old_places.rank
    and r.id = coalesce(
      (select k.id from {schema}.ready as k where k.job = old_places.id), old_places.id
    )
  returning old_places.id, r.claim_no
),
left_scheduled as (
  delete from {schema}.sched s using old_places
  where s.lane = any(array[old_places.lane]) and s.run_at = old_places.run_at
    and s.id = old_places.id
  returning s.id, s.claim_no
),
rewritten as materialized (
  select incoming.*, x.claim_no
  from (select * from left_ready union all select * from left_scheduled) x
    join incoming on incoming.id = x.id
),
changed_jobs as (
  update {schema}.job j
  set lane = rewritten.lane, rank = rewritten.rank, task = rewritten.task,
    payload = rewritten.payload, run_at = rewritten.run_at, opts = rewritten.opts,
    umode = rewritten.umode, parked_at = null, ties = rewritten.ties, held = null
  from rewritten where j.id = any(array[rewritten.id])
),
left_gates as (
  delete from {schema}.gate_queue as g
  where g.id = any(array(select old_places.id from old_places where old_places.ties is not null))
),
new_scheduled as (
  insert into {schema}.sched (lane, run_at, id, claim_no)
  select rewritten.lane, rewritten.run_at, rewritten.id, rewritten.claim_no from rewritten
  where rewritten.run_at > :now::float8
),
new_ready as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select rewritten.lane, rewritten.rank, rewritten.id, rewritten.claim_no from rewritten
  where rewritten.run_at is null or rewritten.run_at <= :now::float8
)
select count(*), array(
  select old_places.ties from old_places where old_places.held is not null order by id
), array(select old_places.held from old_places where old_places.held is not null order by id)
from rewritten

-- name: rewrite_tied_job(ids, payloads)
-- `rewrite_job` for nodes of a plan: only their arguments change. The caller has locked their
-- rows in `ready` and `sched`.
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.job as j set payload = u.payload
from unnest(:ids::uuid[], :payloads::bytea[]) as u (id, payload)
where j.id = any(array[u.id])
returning 1

-- name: mark_repeated(ids, until)
-- only here: SQLite has no marks of repeated enqueues.
-- These jobs were stored by a repeat. A first try that arrives later finds this mark.
insert into {schema}.repeated (id, until)
select i.id, :until::float8 from unnest(:ids::uuid[]) i (id)
on conflict (id) do nothing

-- name: recheck_repeated(ids, is_repeat)
-- only here: see `mark_repeated`.
-- Runs after the insert, with a younger snapshot. It tells whether another try has stored one
-- of these jobs and the job is already final. Only a repeat has to search the final jobs.
-- The planner may evaluate several `exists` by one scan of the whole table. A subquery as a
-- value is always an index probe by id.
select 1 from unnest(:ids::uuid[]) i (id)
where (select 1 from {schema}.repeated p where p.id = i.id) is not null
  or (:is_repeat::bool and (
    (select 1 from {schema}.kept k where k.id = i.id) is not null
    or (select 1 from {schema}.hist h where h.id = i.id limit 1) is not null
  ))
limit 1
