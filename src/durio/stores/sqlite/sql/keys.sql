-- Idempotency keys: which job holds a key, and until when.

-- name: find_key_holder(key)
-- only here: PostgreSQL reads keys and their jobs in separate statements, after locking both.
-- Called by enqueue for each job with a key. The job columns are null when the job has been
-- pruned and its window is still open.
select uniq.id, {shown_state}, uniq.until, uniq.digest, job.created_at, job.queue, job.seq,
  job.ties
from uniq left join job on job.id = uniq.id
where uniq.key = :key

-- name: take_key(key, job_id, mode, digest, until)
-- Makes a job the holder and replaces any earlier holder.
insert into uniq (key, id, mode, digest, until)
values (:key, :job_id, :mode, :digest, :until)
on conflict (key) do update
set id = excluded.id, mode = excluded.mode, digest = excluded.digest, until = excluded.until

-- name: rename_key(key, new_key, job_id)
-- only here: PostgreSQL takes the new key and frees the old one.
update uniq set key = :new_key where key = :key and id = :job_id

-- name: free_key(key, job_id)
-- Only the holder frees a key: a later job may hold it by now.
delete from uniq where key = :key and id = :job_id

-- name: extend_to_window(key, job_id)
-- only here: PostgreSQL does this inside the statement that finishes jobs.
-- Within its window a done job still holds the key, and callers get its result. So job and
-- result are kept at least until the window ends.
update job
set result_until = max(
    result_until, (select until from uniq where key = :key and id = :job_id)
  ),
  gone_at = max(gone_at, (select until from uniq where key = :key and id = :job_id))
where id = :job_id and exists (
  select 1 from uniq where key = :key and id = :job_id and until is not null
)
