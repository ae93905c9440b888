-- Claiming jobs, inside the transaction that also records outcomes (finish.sql).
-- State codes: 0 scheduled, 2 ready, 3 running, 4 done, 5 dead, 6 cancelled.

-- name: has_valid_lease(worker, boot, monotonic_seconds)
-- only here: PostgreSQL checks the lease inside the statement that claims.
-- Only a worker with a lease that has not expired may claim. Also whether any lane has jobs
-- that passed gates, and when time lets a job pass one.
select exists (select 1 from gated where newest is not null),
  (select min(due) from gate where due is not null)
from worker
where id = :worker and boot = :boot and expires_at > :monotonic_seconds and not rescued

-- name: next_due_in_lane(lane)
-- only here: PostgreSQL finds the next due time inside the statement that claims.
-- When the first scheduled job of this lane is due.
select min(run_at) from job where state = 0 and queue = :lane

-- name: promote_lane(lane, now, limit)
-- Due jobs of one lane become ready, before the same transaction claims from it.
update job set state = 2
where seq in (
  select seq from job
  where state = 0 and queue = :lane and run_at <= :now
  order by run_at limit :limit
)
returning iif(ties is null, null, seq)

-- name: measure_ready(lane, room)
-- only here: PostgreSQL's claims are not bounded in bytes.
-- The arguments of the next jobs of a lane, in bytes; null if there are no jobs.
select sum(length(payload)) from (
  select payload from job where state = 2 and queue = :lane order by rank, seq limit :room
)

-- name: read_ready_sizes(lane, room)
-- only here: as `measure_ready`.
select length(payload) from job
where state = 2 and queue = :lane order by rank, seq limit :room

-- name: look_ready(lane, room)
-- only here: PostgreSQL reads and claims in one statement.
-- The next jobs of a lane, as claims. `claim_ready` then takes these same jobs: no other
-- connection can write between the two. Two plain statements are faster than one with
-- RETURNING.
select id, claim_no + 1, {claim}, ukey, umode, ties is not null
from job
where state = 2 and queue = :lane
  and not exists (select 1 from queue where name = :lane and paused)
order by rank, seq limit :room

-- name: look_packed(lane, room)
-- only here: PostgreSQL reads and claims in one statement.
-- `look_ready` as one JSON array, with the number of jobs that have a key, and the ids of
-- those that have ties: one row instead of hundreds, and the interpreter runs other code
-- meanwhile.
-- A payload that is not UTF-8 makes the array undecodable; the caller then reads rows.
select
  cast(json_group_array(json_array(hex(id), claim_no + 1, {claim_as_json})) as blob),
  count(ukey),
  group_concat(hex(id)) filter (where ties is not null)
from (
  select * from job
  where state = 2 and queue = :lane
    and not exists (select 1 from queue where name = :lane and paused)
  order by rank, seq limit :room
)

-- name: claim_ready(worker, lane, jobs, now)
-- only here: the second half of `look_ready`.
-- `jobs` is the number of rows that `look_ready` returned.
update job
set state = 3, worker = :worker, claim_no = claim_no + 1, alone = 0, started_at = :now
where seq in (
  select seq from job where state = 2 and queue = :lane order by rank, seq limit :jobs
)

-- name: find_next_jobs(lane, room, tasks)
-- only here: PostgreSQL's tickets are rows of `ready` as all others.
-- The next jobs of a lane in which some have passed gates, and the size of their arguments.
-- `tasks` is null or a JSON list, as for `look_known`.
select seq, length(job.payload), gated.held
from (
  select * from (
    select rank, seq as newest, 0 as ticket, seq from job
    where state = 2 and queue = :lane
      and (:tasks is null or task in (select value from json_each(:tasks)) or exists (
        select 1 from json_each(:tasks)
        where value like '%*'
          and substr(task, 1, length(value) - 1) = rtrim(value, '*')
      ))
    order by rank, seq limit :room
  )
  union all
  select * from (
    select gated.rank, gated.newest, gated.ticket, gated.seq
    from gated cross join job using (seq)
    where gated.queue = :lane and gated.newest is not null
      and (:tasks is null or job.task in (select value from json_each(:tasks)) or exists (
        select 1 from json_each(:tasks)
        where value like '%*'
          and substr(job.task, 1, length(value) - 1) = rtrim(value, '*')
      ))
    order by gated.rank, gated.newest, gated.ticket limit :room
  )
  order by 1, 2, 3 limit :room
) as following
cross join job using (seq)
left join gated using (seq)
where not exists (select 1 from queue where name = :lane and paused)
order by following.rank, following.newest, following.ticket

-- name: look_chosen(seqs)
-- only here: the second half of `find_next_jobs`. `seqs` is a JSON array.
select id, claim_no + 1, {claim}, ukey, umode, ties is not null, seq, ties
from (select key as place, value as wanted from json_each(:seqs))
cross join job on job.seq = wanted
order by place

-- name: claim_chosen(worker, seqs, now)
-- only here: the last part of `find_next_jobs`.
update job
set state = 3, worker = :worker, claim_no = claim_no + 1, alone = 0, started_at = :now
where seq in (select value from json_each(:seqs))

-- name: look_known(lane, room, tasks)
-- only here: PostgreSQL reads and claims in one statement.
-- `look_ready` for a worker that has found a task it does not know. `tasks` is a JSON list of
-- the tasks it knows, and of prefixes such as `shop.email:*`.
select id, claim_no + 1, {claim}, ukey, umode, ties is not null
from job
where state = 2 and queue = :lane
  and not exists (select 1 from queue where name = :lane and paused)
  and (task in (select value from json_each(:tasks)) or exists (
    select 1 from json_each(:tasks)
    where value like '%*' and substr(task, 1, length(value) - 1) = rtrim(value, '*')
  ))
order by rank, seq limit :room

-- name: claim_known(worker, lane, jobs, now, tasks)
-- only here: the second half of `look_known`.
update job
set state = 3, worker = :worker, claim_no = claim_no + 1, alone = 0, started_at = :now
where seq in (
  select seq from job
  where state = 2 and queue = :lane
    and (task in (select value from json_each(:tasks)) or exists (
      select 1 from json_each(:tasks)
      where value like '%*' and substr(task, 1, length(value) - 1) = rtrim(value, '*')
    ))
  order by rank, seq limit :jobs
)

-- name: read_held_claims(worker)
-- Every job that runs under this worker. A worker requests them (`resync`) when the reply to
-- an exchange was lost.
select id, claim_no, {claim}
from job
where state = 3 and worker = :worker
order by rank, seq
