-- Deleting final jobs past their retention, and expired keys. Every statement is bounded by
-- `limit`. State codes: 4 done, 5 dead, 6 cancelled; `>= 4` is final.

-- name: prune_aged(now, limit)
-- Done and cancelled jobs. Dead jobs have a rule of their own.
delete from job
where seq in (
  select seq from job
  where state >= 4 and state <> 5 and gone_at <= :now
  order by gone_at limit :limit
)
returning 1

-- name: prune_dead(now, limit, dead_count)
-- Dead jobs past their age and not among the newest `dead_count`.
delete from job
where seq in (
  select seq from job
  where died_at is not null and gone_at <= :now and (
    :dead_count = 0
    or died_at < (
      select died_at from job where died_at is not null
      order by died_at desc limit 1 offset :dead_count - 1
    )
  )
  order by died_at limit :limit
)
returning 1

-- name: keep_done(id, gone_at, bucket, keep_count)
update job set gone_at = :gone_at, bucket = :bucket, keep_count = :keep_count
where id = :id and state = 4

-- name: next_bucket(after)
-- Walks the buckets with one index seek each, independent of the number of jobs in them.
select min(bucket) from job where bucket > :after

-- name: prune_bucket(bucket, limit, now)
-- The newest job of a bucket says how many are kept. A job that holds a key is also kept
-- until the window of the key ends.
delete from job
where seq in (
  select seq from job
  where bucket = :bucket
  order by finished_at desc, seq desc limit :limit
  offset (
    select keep_count from job
    where bucket = :bucket
    order by finished_at desc, seq desc limit 1
  )
)
and not exists (
  select 1 from uniq where key = job.ukey and uniq.id = job.id and until > :now
)
returning 1

-- name: prune_keys(now, limit)
-- Keys whose window is over. A window lasts at least until its job is final.
delete from uniq
where key in (
  select key from uniq
  where until <= :now
    and not exists (select 1 from job where job.id = uniq.id and job.state < 4)
  order by until limit :limit
)
returning 1
