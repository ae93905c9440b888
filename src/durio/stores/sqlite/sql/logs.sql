-- Logs: appending, reading, and letting jobs go whose wait is over.
-- State codes: 0 scheduled, 1 blocked, 2 ready.

-- name: extend_logs(entries)
-- only here: functions of PostgreSQL do this (`append_entries`, `settle_logs`).
-- Makes room for entries at the end of logs, which may be new; returns the new lengths.
-- `entries` is a JSON object: numbers of entries by log.
insert into log (name, length) select key, value from json_each(:entries) where true
on conflict (name) do update set length = length + excluded.length
returning name, length

-- name: expire_log(log, expires_at)
-- only here: functions of PostgreSQL do this (`append_entries`, `settle_logs`).
update log set expires_at = :expires_at where name = :log

-- name: append_entry(log, offset, now, tag, state, job, uid, body)
-- only here: functions of PostgreSQL do this (`append_entries`, `settle_logs`).
insert into entry (log, off, at, tag, state, job, uid, body)
values (:log, :offset, :now, :tag, :state, :job, :uid, :body)

-- name: has_entry(log, uid)
-- only here: functions of PostgreSQL do this (`append_entries`, `settle_logs`).
select 1 from entry where log = :log and uid = :uid

-- name: read_lengths(logs)
-- `logs` is a JSON array.
select name, length from json_each(:logs) as each cross join log on log.name = each.value

-- name: read_entries(log, start, limit)
select off, at, tag, state, job, uid, body from entry
where log = :log and off >= :start order by off limit :limit

-- name: trim_log(log, before)
delete from entry where log = :log and off < :before

-- name: drop_log(log)
delete from log where name = :log

-- name: insert_wait(id, log, above, delay, lane)
-- After the insert of a blocked job.
insert into waits (seq, log, above, delay, queue)
select seq, :log, :above, :delay, :lane from job where id = :id

-- name: find_waiters(lengths, limit)
-- only here: functions of PostgreSQL do this (`append_entries`, `settle_logs`).
-- Jobs whose wait is over now that the logs have these lengths, a JSON object: log by log,
-- in their order of arrival.
select waits.seq, waits.queue, job.run_at, waits.delay, job.ties ->> '$[3]', waits.log
from json_each(:lengths) as each
cross join waits on waits.log = each.key and waits.above < each.value
cross join job on job.seq = waits.seq
order by waits.log, waits.seq limit :limit

-- name: end_wait(seq)
-- only here: functions of PostgreSQL do this (`append_entries`, `settle_logs`).
delete from waits where seq = :seq

-- name: unblock_job(seq, state, run_at)
-- only here: functions of PostgreSQL do this (`append_entries`, `settle_logs`).
update job set state = :state, run_at = :run_at where seq = :seq and state = 1

-- name: mark_log(log, has_more)
-- only here: functions of PostgreSQL do this (`append_entries`, `settle_logs`).
update log set has_more = :has_more where name = :log

-- name: find_marked_logs(limit)
-- only here: functions of PostgreSQL do this (`append_entries`, `settle_logs`).
select name, length from log where has_more order by name limit :limit

-- name: find_expired_logs(now, limit)
select name from log where expires_at <= :now order by expires_at limit :limit

-- name: delete_entries(log, limit)
delete from entry where log = :log and off in (
  select off from entry where log = :log order by off limit :limit
)
returning 1

-- name: read_ties(id)
select state, ties from job where id = :id

-- name: write_ties(id, ties)
update job set ties = :ties where id = :id

-- name: extend_wait(id, above)
update waits set above = :above where seq = (select seq from job where id = :id)
returning 1

-- name: stop_waiting(id)
-- A blocked job that is cancelled.
delete from waits where seq = (select seq from job where id = :id)
