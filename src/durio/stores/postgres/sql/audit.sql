-- The audit log, and counts of deaths by lane, task and error.

-- name: insert_audit(at, namespace, who, verb, target, jobs, details)
insert into {schema}.audit (at, namespace, who, verb, target, jobs, details)
values (:at::float8, :namespace::text, :who::text, :verb::text, :target::text, :jobs::int8,
  :details::text)
returning seq

-- name: add_to_audit(seq, at, jobs)
-- One more step of the same bulk action.
update {schema}.audit set at = :at::float8, jobs = jobs + :jobs::int8 where seq = :seq::int8
returning seq

-- name: read_audit(namespace, before, limit)
select at, who, verb, target, jobs, details, seq from {schema}.audit
where (:namespace::text is null or namespace = :namespace::text)
  and (:before::int8 is null or seq < :before::int8)
order by seq desc limit :limit::int8

-- name: read_writable()
-- only here: SQLite's files are refused when they are opened.
select pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'

-- name: prune_audit(keep, limit)
-- All but the newest `keep` lines.
delete from {schema}.audit
where seq = any(array(
  select seq from {schema}.audit
  where seq <= (select seq from {schema}.audit order by seq desc offset :keep::int8 limit 1)
  order by seq limit :limit::int8
  for update skip locked
))

-- name: next_death_number(deaths)
-- The row without names counts all deaths. It stays locked until the transaction ends.
insert into {schema}.tally as t (lane, task, error_type, dead)
values ('', '', '', :deaths::int8)
on conflict (lane, task, error_type) do update set dead = t.dead + excluded.dead
returning dead

-- name: number_death(ids, numbers)
-- A join by `any(array[...])` is always an index probe (statements.py).
update {schema}.kept as k set died_no = d.number
from unnest(:ids::uuid[], :numbers::int8[]) as d (id, number)
where k.id = any(array[d.id])
returning k.lane, k.task, k.errors[cardinality(k.errors)], k.reason

-- name: find_death_counts(lanes, tasks, error_types)
-- only here: SQLite's `add_to_death_count` says whether the row exists.
select t.lane, t.task, t.error_type
from unnest(:lanes::text[], :tasks::text[], :error_types::text[]) as u (lane, task, error_type)
join {schema}.tally as t
  on t.lane = u.lane and t.task = u.task and t.error_type = u.error_type

-- name: count_death_rows
select count(*) from {schema}.tally

-- name: upsert_death_counts(lanes, tasks, error_types, deaths)
-- only here: SQLite adds one death at a time (`add_to_death_count`, `insert_death_count`).
insert into {schema}.tally as t (lane, task, error_type, dead)
select u.lane, u.task, u.error_type, u.dead
from unnest(:lanes::text[], :tasks::text[], :error_types::text[], :deaths::int8[])
  as u (lane, task, error_type, dead)
on conflict (lane, task, error_type) do update set dead = t.dead + excluded.dead

-- name: read_death_counts(first, end)
-- Not the row without names: it numbers the deaths.
select lane, task, error_type, dead from {schema}.tally
where lane >= :first::text and lane < :end::text
order by lane, task, error_type
