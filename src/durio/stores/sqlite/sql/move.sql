-- Moving all jobs of this file to another store. These statements read whole tables, once.
-- SQLite is only ever the store that is left.

-- name: read_move_mark()
-- The move of this file's jobs, if there is one.
select body from doc where kind = 'move' and name = ''

-- name: write_move_mark(body)
insert into doc (kind, name, body) values ('move', '', :body)
on conflict (kind, name) do update set body = excluded.body

-- name: delete_move_mark()
-- only here: a move is taken back in the store that is left.
delete from doc where kind = 'move' and name = ''

-- name: create_freeze_trigger()
-- only here: a move freezes the store that is left.
-- SQLite itself refuses changes of this table by any process, of any release. The caller fills
-- in name, event, table, condition and message. An insert is refused after it happened: an
-- insert that finds its row stored writes nothing and is not refused.
create trigger if not exists {name} {when} on {table} {unless}
begin
  select raise(abort, {text});
end

-- name: find_freeze_triggers()
-- only here: a move freezes the store that is left.
select name from sqlite_schema where type = 'trigger' and name glob 'durio_move_*'

-- name: find_registered_workers()
-- only here: the workers of the store that is left are asked to drain.
select id, namespace from worker where not rescued order by id

-- name: count_active_workers()
-- only here: the store that is left waits until no worker and no running job remains.
select (select count(*) from worker), (select count(*) from job where state = 3)

-- name: find_namespaces()
-- only here: the store that is left names the Apps whose jobs move.
select distinct substr(name, 1, instr(name, ':') - 1) from queue order by 1

-- name: count_all_jobs()
-- Jobs by namespace and state, as they are exported.
select substr(queue, 1, instr(queue, ':') - 1), {moved_state}, count(*) from job group by 1, 2

-- part: moved_state
iif(state = 2 and json_array_length(ties, '$[3]') > 0, 1, state)

-- part: moved_run_at
iif(
  state in (1, 2) and json_array_length(ties, '$[3]') > 0
    and not exists (select 1 from waits where waits.seq = job.seq),
  null, run_at
)

-- name: measure_next_jobs(after, limit)
-- only here: jobs are exported from the store that is left.
-- The bytes of the next jobs: a batch is bounded in bytes as well as in jobs.
select seq, length(payload) + coalesce(length(result), 0) + coalesce(length(errors), 0)
  + coalesce(length(opts), 0) + coalesce(length(progress), 0)
from job where seq > :after order by seq limit :limit

-- name: export_jobs(after, last)
-- only here: jobs are exported from the store that is left.
-- A ready job with gates is blocked: in its new store every job passes its gates again.
select seq, {job}, (select delay from waits where waits.seq = job.seq) from job
where seq > :after and seq <= :last order by seq

-- name: export_keys(after, limit)
-- only here: keys are exported from the store that is left.
select key, id, mode, digest, until from uniq where key > :after order by key limit :limit

-- name: export_queues()
-- only here: queues are exported from the store that is left.
select name, paused, closed, maxsize, is_default, hand_maxsize from queue order by name

-- part: moved_record
kind not glob 'command:*' and kind not glob 'answer:*'

-- name: measure_next_records(kind, name, limit)
-- only here: records are exported from the store that is left.
-- Without commands and their answers: the workers that they are for are gone.
select kind, name, length(body) from record
where (kind, name) > (:kind, :name) and {moved_record} order by kind, name limit :limit

-- name: export_records(kind, name, last_kind, last_name)
-- only here: records are exported from the store that is left.
select kind, name, body, due_at, expires_at from record
where (kind, name) > (:kind, :name) and (kind, name) <= (:last_kind, :last_name)
  and {moved_record}
order by kind, name

-- name: export_logs(name, limit)
-- only here: logs are exported from the store that is left.
select name, length, expires_at from log
where name > :name order by name limit :limit

-- name: measure_next_entries(log, offset, limit)
-- only here: entries are exported from the store that is left.
select log, off, coalesce(length(body), 0) from entry
where (log, off) > (:log, :offset) order by log, off limit :limit

-- name: export_entries(log, offset, last_log, last_offset)
-- only here: entries are exported from the store that is left.
select e.log, e.off, e.at, e.tag, e.state, e.job, e.uid, e.body, l.expires_at
from entry as e left join log as l on l.name = e.log
where (e.log, e.off) > (:log, :offset) and (e.log, e.off) <= (:last_log, :last_offset)
order by e.log, e.off

-- name: export_protocols()
-- only here: what workers must know is exported from the store that is left.
select namespace, required from protocol order by namespace

-- name: export_death_counts()
-- only here: death counts are exported from the store that is left.
select queue, task, error_type, dead from tally order by queue, task, error_type

-- name: export_audit()
-- only here: the audit is exported from the store that is left.
select at, namespace, who, verb, target, jobs, details from audit order by seq
