-- Gates: places, tokens, and the jobs that stand before them. The functions are in
-- migrations/0004_gates.sql; all of this file is the last step of a transaction.

-- name: pass_gates(ids, names, places, limit, now)
-- only here: SQLite has one writer and passes gate by gate.
-- Lets these jobs enter, gives places back, and lets jobs pass. A gate with 0 places is looked
-- at. What belongs to a gate that another transaction has locked stays deferred.
select {schema}.pass_gates_1(:ids::uuid[], :names::text[], :places::int4[], :limit::int4,
  :now::float8)

-- name: defer_gates(ids, names, places)
-- only here: SQLite has one writer.
-- For a transaction that may be long: `settle_gates`, or the next that locks the gate, goes on.
select {schema}.defer_gates_1(:ids::uuid[], :names::text[], :places::int4[])

-- name: settle_gates(limit, now)
-- only here: SQLite finds due gates by itself.
select {schema}.settle_gates_1(:limit::int4, :now::float8)

-- name: start_jobs(ids)
-- only here: SQLite reads the gates of claimed jobs.
-- Claimed jobs give back what they hold until the start.
select {schema}.start_jobs_1(:ids::uuid[])

-- name: create_gate(names, now)
-- only here: SQLite has one writer and needs no locks.
-- Creates or locks gates, in the order of their names. `where false` writes nothing.
insert into {schema}.gate as g (name, at)
select u.name, :now::float8 from unnest(:names::text[]) as u (name)
order by u.name collate "C"
on conflict (name) do update set at = g.at where false

-- name: lock_gates(names)
-- only here: SQLite has one writer and needs no locks.
select name, cap, used, rate, burst, tokens, at, until from {schema}.gate
where name = any(:names::text[]) order by name for update

-- name: find_gates_to_change(prefix, end, drop, has_cap, cap, has_rate, rate, has_burst, burst, limit)
-- only here: SQLite's writer looks at each gate.
-- Those that the change makes different.
select name from {schema}.gate
where name >= :prefix::text and name < :end::text and case
  when :drop::bool then cap is not null or rate is not null or until is not null
  else (:has_cap::bool and cap is distinct from :cap::int4)
    or (:has_rate::bool and rate is distinct from :rate::float8)
    or (:has_burst::bool and burst <> :burst::float8)
  end
order by name limit :limit::int4

-- name: write_gate(names, caps, rates, bursts, tokens, untils, now)
-- The caller has locked these gates. Waiting jobs are looked at by `pass_gates` or, as the
-- gates are due, by `settle_gates`.
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.gate as g
set cap = u.cap, rate = u.rate, burst = u.burst, tokens = u.tokens, until = u.until,
  at = :now::float8, due = case when (
    select 1 from {schema}.gate_queue as q where q.gate = u.name limit 1
  ) is not null then :now::float8 end
from unnest(:names::text[], :caps::int4[], :rates::float8[], :bursts::float8[],
  :tokens::float8[], :untils::float8[]) as u (name, cap, rate, burst, tokens, until)
where g.name = any(array[u.name])

-- name: read_gates(prefix, end, limit, now)
-- Places that are given back by deferred rows are free.
select g.name, g.cap, g.used - coalesce((
    select sum(d.places)::int4 from {schema}.gate_deferred as d where d.gate = g.name
  ), 0), g.rate, g.burst, case when g.rate is null then g.tokens else least(g.burst, g.tokens
    + greatest(coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) - g.at, 0)
    * g.rate) end, g.until,
  (select count(*) from {schema}.gate_queue as q where q.gate = g.name)
from {schema}.gate as g
where g.name >= :prefix::text and g.name < :end::text
order by g.name limit :limit::int4

-- name: read_gated(ids)
select j.id, j.ties, coalesce(j.held, 0), (
  select q.gate from {schema}.gate_queue as q where q.id = j.id
)
from {schema}.job as j
where j.id = any(:ids::uuid[]) and j.ties is not null

-- name: prune_gates(after, limit, now, idle_seconds)
-- only here: SQLite's writer looks at each gate.
-- Among the next `limit` gates, deletes those that a new one would equal. Returns the last name
-- that it has read. Gates that another transaction has locked stay.
with next_gates as materialized (
  select g.name from {schema}.gate as g where g.name > :after::text
  order by g.name limit :limit::int4
),
idle as materialized (
  select g.name from {schema}.gate as g
  where g.name = any(array(select n.name from next_gates as n)) and g.used = 0
    and coalesce(g.until <= :now::float8, true)
    and (g.cap is null and g.rate is null or g.at <= :now::float8 - :idle_seconds::float8 and (
      g.rate is null or g.tokens + (:now::float8 - g.at) * g.rate >= g.burst
    ))
    and (select 1 from {schema}.gate_queue as q where q.gate = g.name limit 1) is null
    and (select 1 from {schema}.gate_deferred as d where d.gate = g.name limit 1) is null
  for update skip locked
),
gone as (
  delete from {schema}.gate as g where g.name = any(array(select i.name from idle as i))
)
select max(n.name) from next_gates as n having count(*) >= :limit::int4
