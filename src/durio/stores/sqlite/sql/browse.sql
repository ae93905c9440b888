-- Reading for people and for waiters. Nothing here writes.
-- State codes: 0 scheduled, 2 ready, 3 running, 4 done, 5 dead, 6 cancelled.

-- name: read_jobs()
-- The caller appends an index and conditions.
select {stored}, seq from job

-- name: read_blocked_jobs()
-- only here: blocked jobs of PostgreSQL are found in `waits` by every read.
-- The caller appends conditions.
select {stored}, seq from (select job.* from waits cross join job using (seq)) as job

-- name: read_jobs_before_gates()
-- only here: as `read_blocked_jobs`.
select {stored}, seq
from (select job.* from gated cross join job using (seq) where gated.gate is not null) as job

-- name: read_passed_jobs()
-- only here: as `read_blocked_jobs`. Jobs that are ready behind their gates.
select {stored}, seq
from (select job.* from gated cross join job using (seq) where gated.newest is not null) as job

-- name: read_states(ids)
-- `ids` is a JSON list of ids in hexadecimal.
select id, {shown_state} from job where id in (select unhex(value) from json_each(:ids))

-- name: read_ids(first, last, limit)
-- The newest ids of a range.
select id from job where id between :first and :last order by id desc limit :limit

-- name: read_newest_below(seq)
-- only here: PostgreSQL sorts pages by id.
select max(seq) from job where seq < :seq

-- name: read_window_of_ids(before, first, offset)
-- only here: as `read_newest_below`. The id that this number of ids of a range are above.
select id from job where id < :before and id >= :first order by id desc limit 1 offset :offset

-- name: count_jobs_before(id, limit)
-- Ready jobs of the same lane that come before this one, at most `limit`: index entries only.
-- Two ranges, because a comparison of (rank, seq) would read all jobs of the same rank.
select count(*) from (
  select 1
  from job as mine cross join job as other indexed by job_ready
    on other.state = 2 and other.queue = mine.queue and other.rank < mine.rank
  where mine.id = :id
  union all
  select 1
  from job as mine cross join job as other indexed by job_ready
    on other.state = 2 and other.queue = mine.queue and other.rank = mine.rank
      and other.seq < mine.seq
  where mine.id = :id
  limit :limit
)

-- name: has_many_scheduled(limit)
-- only here: PostgreSQL has a table of its own for each group of states.
-- Whether the index of this state has more than `limit` entries. A page of one state reads a
-- short index and sorts; it walks by arrival instead of a long one. The same holds for the
-- next three.
select 1 from job indexed by job_scheduled where state = 0 limit 1 offset :limit

-- name: has_many_ready(limit)
-- only here: as `has_many_scheduled`.
select 1 from job indexed by job_ready where state = 2 limit 1 offset :limit

-- name: has_many_running(limit)
-- only here: as `has_many_scheduled`.
select 1 from job indexed by job_running where state = 3 limit 1 offset :limit

-- name: has_many_dead(limit)
-- only here: as `has_many_scheduled`.
select 1 from job indexed by job_dead where died_at is not null limit 1 offset :limit

-- name: read_lanes(first, end)
-- Every queue between two names that was ever used.
select name, paused, closed, maxsize, hand_maxsize, is_over from queue
where name >= :first and name < :end
order by name

-- name: read_busy_lanes(first, end)
-- Lanes between two names with waiting jobs. Jumps from lane to lane through the indexes, so
-- that unused queues cost nothing.
with recursive
  ready (name) as (
    select min(queue) from job where state = 2 and queue >= :first and queue < :end
    union all
    select (select min(queue) from job where state = 2 and queue > ready.name and queue < :end)
    from ready where ready.name is not null
  ),
  scheduled (name) as (
    select min(queue) from job where state = 0 and queue >= :first and queue < :end
    union all
    select (
      select min(queue) from job where state = 0 and queue > scheduled.name and queue < :end
    )
    from scheduled where scheduled.name is not null
  ),
  passed (name) as (
    select min(queue) from gated where newest is not null and queue >= :first and queue < :end
    union all
    select (
      select min(queue) from gated
      where newest is not null and queue > passed.name and queue < :end
    )
    from passed where passed.name is not null
  )
select name, paused, closed, maxsize, hand_maxsize, is_over from queue
where name in (
  select name from ready union select name from scheduled union select name from passed
)
order by name

-- name: count_jobs_by_state(first, end)
-- Waiting, running and dead jobs per lane. Reads index entries only, except for running jobs,
-- which are few.
select queue, 2, count(*) from job
where state = 2 and queue >= :first and queue < :end group by queue
union all
select queue, 1, count(*) from gated
where gate is not null and queue >= :first and queue < :end group by queue
union all
select queue, 2, count(*) from gated
where newest is not null and queue >= :first and queue < :end group by queue
union all
select queue, 0, count(*) from job
where state = 0 and queue >= :first and queue < :end group by queue
union all
select queue, 1, count(*) from waits
where queue >= :first and queue < :end group by queue
union all
select queue, 3, count(*) from job indexed by job_running
where state = 3 and queue >= :first and queue < :end group by queue
union all
select queue, 5, count(*) from job indexed by job_dead
where died_at is not null and queue >= :first and queue < :end group by queue

-- name: count_jobs_before_gates(first, end)
select queue, count(*) from gated
where gate is not null and queue >= :first and queue < :end group by queue

-- name: read_oldest_ready(first, end)
-- Since when the oldest ready job of each lane could have run. Jumps from lane to lane, and
-- reads the first ten jobs of every priority.
with recursive
  lane (name) as (
    select min(queue) from job where state = 2 and queue >= :first and queue < :end
    union all
    select (select min(queue) from job where state = 2 and queue > lane.name and queue < :end)
    from lane where lane.name is not null
  ),
  level (rank) as (select 0 union all select rank + 1 from level where rank < 9)
select lane.name, min((
  select min(since) from (
    select max(created_at, coalesce(run_at, created_at)) as since from job
    where state = 2 and queue = lane.name and job.rank = level.rank
    order by seq limit 10
  )
))
from lane, level
where lane.name is not null
group by lane.name

-- name: read_oldest_passed(first, end)
-- only here: as `read_oldest_ready`, for jobs that have passed gates.
select queue, min(since) from gated
where newest is not null and queue >= :first and queue < :end group by queue

-- name: read_waiting_tasks(lane, limit)
-- The first `limit` ready jobs and the first `limit` scheduled jobs of a lane, by task.
select task, count(*) from (
  select task from (
    select task from job where state = 2 and queue = :lane order by rank, seq limit :limit
  )
  union all
  select task from (
    select task from gated cross join job using (seq)
    where gated.queue = :lane and newest is not null
    order by gated.rank, newest, ticket limit :limit
  )
  union all
  select task from (
    select task from job where state = 0 and queue = :lane order by run_at limit :limit
  )
)
group by task

-- name: read_workers(namespace)
-- A null namespace means all.
select id, info, boot, expires_at,
  (select count(*) from job where state = 3 and worker = worker.id), vitals
from worker
where :namespace is null or namespace = :namespace
order by id

-- name: read_namespaces(kinds)
-- Of queues, workers, and records of these kinds.
select substr(name, 1, instr(name, ':') - 1) from queue
union
select namespace from worker
union
select substr(record.kind, length(each.value) + 2)
from json_each(:kinds) as each
cross join record on record.kind > each.value || ':' and record.kind < each.value || ';'
order by 1
