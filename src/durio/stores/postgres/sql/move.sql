-- Receiving the jobs of another store (`durio move`).

-- name: create_move_mark(kind, namespace, body)
-- only here: SQLite is only the source of a move (`write_move_mark`).
-- Of two moves that begin at the same time, one inserts the mark. The other waits for its
-- commit and then finds the mark.
insert into {schema}.doc (kind, name, body) values (:kind::text, :namespace::text, :body::text)
on conflict (kind, name) do nothing
returning 1

-- name: write_move_mark(kind, namespace, body)
update {schema}.doc set body = :body::text where kind = :kind::text and name = :namespace::text

-- name: lock_move_mark(namespace)
-- only here: SQLite has one writer and needs no locks.
select body from {schema}.doc where kind = 'move' and name = :namespace::text for update

-- name: read_move_mark(namespace)
select body from {schema}.doc where kind = 'move' and name = :namespace::text

-- name: import_queues(names, maxsizes, are_default, manual_maxsizes)
-- only here: only PostgreSQL receives a move.
-- Queues with their old settings, but paused and closed. A bound that code has declared here
-- stays.
insert into {schema}.queue as q (
  name, paused, closed, maxsize, is_default, hand_maxsize
)
select u.name, true, true, u.maxsize, u.is_default, u.hand_maxsize
from unnest(:names::text[], :maxsizes::int8[], :are_default::bool[], :manual_maxsizes::int8[])
  as u (name, maxsize, is_default, hand_maxsize)
order by u.name
on conflict (name) do update
set paused = true, closed = true, hand_maxsize = excluded.hand_maxsize,
  maxsize = coalesce(q.maxsize, excluded.maxsize),
  is_default = case when q.maxsize is null then excluded.is_default else q.is_default end

-- name: set_imported_queues(names, paused, closed)
-- only here: only PostgreSQL receives a move.
update {schema}.queue as q set paused = u.paused, closed = u.closed
from unnest(:names::text[], :paused::bool[], :closed::bool[]) as u (name, paused, closed)
where q.name = u.name

-- name: import_jobs(ids, lanes, ranks, states, tasks, payloads, retried, losses, lost, snoozed, claim_nos, run_ats, parked_ats, started_ats, keys, key_modes, opts, errors, progress, created_ats, finished_ats, gone_ats, results, result_untils, reasons, buckets, keep_counts, death_numbers, ties)
-- only here: only PostgreSQL receives a move.
-- Jobs of the other store, unchanged. Final ones go to `kept`, with the end of their
-- retention: the partitions of `hist` are for jobs that end here.
with imported as materialized (
  select * from unnest(
    :ids::uuid[], :lanes::text[], :ranks::int2[], :states::int2[], :tasks::text[],
    :payloads::bytea[], :retried::int4[], :losses::int4[], :lost::int2[], :snoozed::int4[],
    :claim_nos::int4[], :run_ats::float8[], :parked_ats::float8[], :started_ats::float8[],
    :keys::bytea[], :key_modes::int2[], :opts::bytea[], :errors::text[], :progress::bytea[],
    :created_ats::float8[], :finished_ats::float8[], :gone_ats::float8[], :results::bytea[],
    :result_untils::float8[], :reasons::text[], :buckets::text[], :keep_counts::int4[],
    :death_numbers::int8[], :ties::text[]
  ) as u ({job})
),
new_jobs as (
  insert into {schema}.job (
    id, lane, rank, task, payload, retried, losses, lost, snoozed, run_at, parked_at, ukey,
    umode, opts, errors, created_at, ties
  )
  select id, lane, rank, task, payload, retried, losses, lost, snoozed, run_at, parked_at,
    ukey, umode, opts, errors::bytea[], created_at, ties
  from imported where state <= 2
),
new_ready as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select lane, rank, id, claim_no from imported where state = 2
),
new_scheduled as (
  insert into {schema}.sched (lane, run_at, id, claim_no)
  select lane, run_at, id, claim_no from imported where state in (0, 1)
)
insert into {schema}.kept (
  {common}, opts, errors, progress, created_at, run_at, started_at, finished_at, result,
  result_until, ukey, umode, reason, died_no, gone_at, bucket, keep_count, ties
)
select {common}, opts, errors::bytea[], progress, created_at, run_at, started_at, finished_at,
  result, result_until, ukey, umode, reason, died_no, gone_at, bucket, keep_count, ties
from imported where state >= 4

-- name: import_keys(keys, ids, modes, digests, untils)
-- only here: only PostgreSQL receives a move.
insert into {schema}.uniq (key, id, mode, digest, until)
select key, id, mode, digest, until
from unnest(:keys::bytea[], :ids::uuid[], :modes::int2[], :digests::bytea[], :untils::float8[])
  as u (key, id, mode, digest, until)
order by key
on conflict (key) do nothing

-- name: import_records(prefix, kinds, names, bodies, due_times, expiry_times)
-- only here: only PostgreSQL receives a move.
-- Records, logs and entries arrive with the prefix of the move before their names, so that
-- nothing reads them until they are placed.
insert into {schema}.record (kind, name, body, due_at, expires_at)
select :prefix::text || kind, name, body, due_at, expires_at
from unnest(:kinds::text[], :names::text[], :bodies::bytea[], :due_times::float8[],
  :expiry_times::float8[]) as u (kind, name, body, due_at, expires_at)

-- name: import_logs(prefix, names, lengths, expiry_times)
-- only here: only PostgreSQL receives a move.
insert into {schema}.log (name, length, expires_at)
select :prefix::text || name, length, expires_at
from unnest(:names::text[], :lengths::int8[], :expiry_times::float8[])
  as u (name, length, expires_at)

-- name: import_entries(prefix, logs, offsets, ats, tags, states, jobs, uids, bodies)
-- only here: only PostgreSQL receives a move.
insert into {schema}.entry (log, off, at, tag, state, job, uid, body)
select :prefix::text || log, off, at, tag, state, job, uid, body
from unnest(:logs::text[], :offsets::int8[], :ats::float8[], :tags::int8[], :states::int2[],
  :jobs::uuid[], :uids::text[], :bodies::bytea[])
  as u (log, off, at, tag, state, job, uid, body)

-- name: read_imported_records(prefix, kind, name, last_kind, last_name)
-- only here: only PostgreSQL receives a move.
select substr(r.kind, length(:prefix::text) + 1), r.name, r.body, r.due_at, r.expires_at
from {schema}.record as r
where (r.kind, r.name) >= (:prefix::text || :kind::text, :name::text)
  and (r.kind, r.name) <= (:prefix::text || :last_kind::text, :last_name::text)
order by r.kind, r.name

-- name: read_imported_logs(prefix, name, last_name)
-- only here: only PostgreSQL receives a move.
select substr(l.name, length(:prefix::text) + 1), l.length, l.expires_at
from {schema}.log as l
where l.name >= :prefix::text || :name::text and l.name <= :prefix::text || :last_name::text
order by l.name

-- name: read_imported_entries(prefix, log, offset, last_log, last_offset)
-- only here: only PostgreSQL receives a move.
select substr(e.log, length(:prefix::text) + 1), e.off, e.at, e.tag, e.state, e.job, e.uid,
  e.body, (select l.expires_at from {schema}.log as l where l.name = e.log)
from {schema}.entry as e
where (e.log, e.off) >= (:prefix::text || :log::text, :offset::int8)
  and (e.log, e.off) <= (:prefix::text || :last_log::text, :last_offset::int8)
order by e.log, e.off

-- name: place_records(prefix, beyond, limit)
-- only here: only PostgreSQL receives a move.
-- A record that was written here is newer and stays.
with placed as (
  delete from {schema}.record where ctid = any(array(
    select r.ctid from {schema}.record as r
    where r.kind >= :prefix::text and r.kind < :beyond::text
    order by r.kind, r.name limit :limit::int8
  ))
  returning substr(kind, length(:prefix::text) + 1) as kind, name, body, due_at, expires_at
),
created as (
  insert into {schema}.record (kind, name, body, due_at, expires_at)
  select kind, name, body, due_at, expires_at from placed
  order by kind collate "C", name collate "C"
  on conflict (kind, name) do nothing
)
select count(*) from placed

-- name: lock_placed_logs(prefix, beyond, limit)
-- only here: only PostgreSQL receives a move.
-- Logs that exist here: the next statement sees all their entries.
select l.name from {schema}.log as l
where l.name = any(array(
  select substr(m.name, length(:prefix::text) + 1) from {schema}.log as m
  where m.name >= :prefix::text and m.name < :beyond::text
  order by m.name limit :limit::int8
))
order by l.name for update

-- name: place_logs(prefix, beyond, except, limit, entries)
-- only here: only PostgreSQL receives a move.
-- Logs with all their entries, until there are so many entries. A log that exists here gets
-- the entries after its own. A log is marked if it has waiters whose wait is over.
with chosen as materialized (
  select c.full_name, substr(c.full_name, length(:prefix::text) + 1) as name, c.length,
    c.expires_at
  from (
    select s.name as full_name, s.length, s.expires_at,
      sum(s.length) over (order by s.name) - s.length as before
    from (
      select l.name, l.length, l.expires_at from {schema}.log as l
      where l.name >= :prefix::text and l.name < :beyond::text
        and substr(l.name, length(:prefix::text) + 1) <> all(:except::text[])
      order by l.name limit :limit::int8
    ) as s
  ) as c
  where c.before < :entries::int8
),
removed as (
  delete from {schema}.log as l using chosen as c where l.name = any(array[c.full_name])
),
heads as (
  insert into {schema}.log as l (name, length, has_more, expires_at)
  select c.name, c.length, (
    select 1 from {schema}.waits as w where w.log = c.name and w.above < c.length limit 1
  ) is not null, c.expires_at
  from chosen as c order by c.name collate "C"
  on conflict (name) do update
  set length = excluded.length + (
    select g.length from {schema}.grown_log as g where g.name = l.name
  ), has_more = l.has_more or excluded.has_more
  returning l.name, l.length
),
renamed as (
  update {schema}.entry as e set log = c.name, off = e.off + h.length - c.length
  from chosen as c join heads as h on h.name = c.name
  where e.log = any(array[c.full_name])
)
select count(*) from chosen

-- name: delete_imported_rows(prefix, beyond)
-- only here: only PostgreSQL receives a move.
with records as (
  delete from {schema}.record where kind >= :prefix::text and kind < :beyond::text
),
entries as (
  delete from {schema}.entry where log >= :prefix::text and log < :beyond::text
)
delete from {schema}.log where name >= :prefix::text and name < :beyond::text

-- name: import_audit(ats, namespaces, who, verbs, targets, jobs, details)
-- only here: only PostgreSQL receives a move.
insert into {schema}.audit (at, namespace, who, verb, target, jobs, details)
select at, namespace, who, verb, target, jobs, details
from unnest(:ats::float8[], :namespaces::text[], :who::text[], :verbs::text[], :targets::text[],
  :jobs::int8[], :details::text[])
  with ordinality as u (at, namespace, who, verb, target, jobs, details, n)
order by n

-- name: read_imported_jobs(ids)
-- only here: only PostgreSQL receives a move.
-- Every place that holds one of these jobs, to compare it with the source. State -1 is a live
-- job without a row in `ready`, `sched` or `run`.
-- A join by `any(array[...])` is always an index probe (statements.py).
select j.id,
  case
    when r.id is not null then 3
    when s.id is not null then case when s.run_at = 'infinity' then 1 else 0 end
    when q.id is not null then 2
    else -1
  end,
  coalesce(r.claim_no, s.claim_no, q.claim_no, 0), j.payload, j.lane, j.rank, j.task,
  coalesce(nullif(j.run_at, 'infinity'), w.run_at), j.created_at, null::bytea, j.ties, w.delay
from {schema}.job as j
left join {schema}.run as r on r.id = any(array[j.id])
left join {schema}.sched as s
  on s.lane = any(array[j.lane]) and s.run_at = j.run_at and s.id = j.id
left join {schema}.ready as q
  on q.lane = any(array[j.lane]) and q.rank = j.rank and q.id = coalesce(
    (select k.id from {schema}.ready as k where k.job = j.id), j.id
  )
left join {schema}.waits as w
  on w.log = any(array[j.ties::jsonb -> 0 ->> 0])
    and w.above = (j.ties::jsonb -> 0 ->> 1)::int8 and w.id = j.id
where j.id = any(:ids::uuid[])
union all
select id, state, claim_no, payload, lane, rank, task, run_at, created_at, result, ties, null
from {schema}.kept where id = any(:ids::uuid[])
union all
select id, state, claim_no, payload, lane, rank, task, run_at, created_at, result, null, null
from {schema}.hist where id = any(:ids::uuid[])

-- name: has_waits(log)
-- only here: only PostgreSQL receives a move.
select 1 from {schema}.waits where log = :log::text limit 1

-- name: read_imported_keys(keys)
-- only here: only PostgreSQL receives a move.
select key, id, mode, digest, until from {schema}.uniq where key = any(:keys::bytea[])

-- name: count_all_jobs(first, end)
-- All jobs of a range of lanes. It reads whole tables, once or twice per move.
select lane, state, sum(jobs)::int8 from (
  select lane, 2 as state, count(*) as jobs from {schema}.ready
  where lane >= :first::text and lane < :end::text group by lane
  union all
  select lane, case when run_at = 'infinity' then 1 else 0 end, count(*) from {schema}.sched
  where lane >= :first::text and lane < :end::text group by 1, 2
  union all
  select j.lane, 3, count(*) from {schema}.run as r join {schema}.job as j on j.id = r.id
  where j.lane >= :first::text and j.lane < :end::text group by j.lane
  union all
  select lane, state, count(*) from {schema}.kept
  where lane >= :first::text and lane < :end::text group by lane, state
  union all
  select lane, state, count(*) from {schema}.hist
  where lane >= :first::text and lane < :end::text group by lane, state
) as c
group by lane, state

-- name: delete_imported_jobs(ids, gates_log)
-- only here: only PostgreSQL receives a move.
-- Takes back imported jobs that have not changed since.
-- A join by `any(array[...])` is always an index probe (statements.py).
with removed as (
  delete from {schema}.job where id = any(:ids::uuid[]) returning lane, rank, run_at, id, ties
),
removed_waits as (
  delete from {schema}.waits as w using removed
  where w.log = any(array[removed.ties::jsonb -> 0 ->> 0])
    and w.above = (removed.ties::jsonb -> 0 ->> 1)::int8 and w.id = removed.id
),
removed_gate_waits as (
  delete from {schema}.waits as w using removed
  where w.log = any(array[:gates_log::text]) and w.above = 0 and w.id = removed.id
),
removed_ready as (
  delete from {schema}.ready as q using removed
  where q.lane = any(array[removed.lane]) and q.rank = removed.rank and q.id = removed.id
),
removed_scheduled as (
  delete from {schema}.sched as d using removed
  where d.lane = any(array[removed.lane]) and d.run_at = removed.run_at and d.id = removed.id
)
delete from {schema}.kept where id = any(:ids::uuid[])

-- name: delete_imported_keys(keys, ids)
-- only here: only PostgreSQL receives a move.
-- A join by `any(array[...])` is always an index probe (statements.py).
delete from {schema}.uniq as q
using unnest(:keys::bytea[], :ids::uuid[]) as u (key, id)
where q.key = any(array[u.key]) and q.id = u.id
