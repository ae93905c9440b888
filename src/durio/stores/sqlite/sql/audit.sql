-- The audit of what operators did, and the counts of deaths. Both are written in the
-- transaction that makes the change.

-- name: insert_audit(now, namespace, who, verb, target, jobs, details)
insert into audit (at, namespace, who, verb, target, jobs, details)
values (:now, :namespace, :who, :verb, :target, :jobs, :details)
returning seq

-- name: add_to_audit(seq, now, jobs)
-- A later batch of the same action adds to its line. No row: the line has been pruned.
update audit set at = :now, jobs = jobs + :jobs where seq = :seq
returning seq

-- name: read_audit(namespace, before, limit)
-- The newest lines first. A null namespace means all.
select at, who, verb, target, jobs, details, seq from audit
where (:namespace is null or namespace = :namespace) and (:before is null or seq < :before)
order by seq desc limit :limit

-- name: prune_audit(keep, limit)
-- Deletes all but the newest `keep` lines, at most `limit` per call.
delete from audit
where seq in (
  select seq from audit
  where seq <= (select seq from audit order by seq desc limit 1 offset :keep)
  order by seq limit :limit
)

-- name: next_death_number()
-- The row without names counts all deaths. Its count numbers them.
insert into tally (queue, task, error_type, dead) values ('', '', '', 1)
on conflict (queue, task, error_type) do update set dead = dead + 1
returning dead

-- name: number_death(id, death_number)
-- Returns the type of the last error. Errors that are not valid JSON must not keep a job from
-- becoming dead.
update job set died_no = :death_number where id = :id
returning coalesce(
  case when json_valid(errors) then json_extract(errors, '$[#-1].type') end, reason, ''
)

-- name: add_to_death_count(lane, task, error_type)
-- only here: PostgreSQL adds all deaths of a transaction in one upsert.
-- No row: this kind of death is new, and the caller checks the number of kinds first.
update tally set dead = dead + 1
where queue = :lane and task = :task and error_type = :error_type
returning dead

-- name: insert_death_count(lane, task, error_type)
-- only here: as `add_to_death_count`.
insert into tally (queue, task, error_type, dead) values (:lane, :task, :error_type, 1)

-- name: count_death_rows()
-- The number of kinds of deaths is bounded.
select count(*) from tally

-- name: read_death_counts(first, end)
-- Lanes between two names; not the row without names.
select queue, task, error_type, dead from tally
where queue >= :first and queue < :end
order by queue, task, error_type
