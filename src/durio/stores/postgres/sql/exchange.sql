-- The exchange: outcomes in, claims out.

-- part: claims_found
-- The rows of `exchange` and `claim_idle` after the first one: one for each claim. The last
-- column is its place in the queue, if that is a ticket.
select * from (
  select id, claim_no, lane, rank, task, payload, retried, losses, lost, snoozed, opts,
    parked_at, null::bool, null::float8, null::float8, null::int4[], null::float8, ticket
  from claimed
  order by rank, coalesce(ticket::uuid, id)
) as claims

-- name: exchange(ids, claim_nos, results, result_seconds, keep_seconds, buckets, keep_counts, worker, done_seconds, now, lanes, limits, skips, want, known_tasks, lease_now, range_lanes, first_ranks, first_ids, end_ranks, end_ids, due_lanes, due_ages)
-- only here: SQLite goes through its outcomes and lanes one by one, without a round trip.
-- Done outcomes in, claims out: the only statement, and the only round trip, of a busy
-- worker. It is `finish_jobs` and `claim_jobs` in one, and uses positions of rows instead of
-- keys. A join by `any(array[...])` is always an index probe: statements.py says why.
--
-- The first nine parameters belong to the part `done` (finish.sql).
-- `now` and `lease_now`: null means the server's time.
-- `limits` per lane; `skips`: jobs to pass over, for a lane that is named again.
-- `known_tasks`: tasks that the worker knows, and prefixes such as `shop.email:*`; null means
-- all.
-- `range_lanes` to `end_ids`: the ranges to scan: the number of the lane, the first rank and id,
-- and the rank and id before which the range ends.
-- `due_lanes`: lanes in which a job may be due; `due_ages`: for how many seconds at most.
--
-- When a job is due there, nothing is done, and the first row says so. Due jobs have to be
-- made ready first, and a statement does not see the rows that it inserts itself.
-- The first row is about the call, every other row is a claim.
with
clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
-- Bounded queues are locked before everything else. Usually there are none.
bounded as materialized (
  select q.name from {schema}.queue as q
  where q.name = any(:lanes::text[]) and (q.maxsize is not null or q.hand_maxsize is not null)
    and coalesce(q.hand_maxsize, q.maxsize) >= 0
  order by q.name
  for no key update
),
due as materialized (
  select min(s.run_at) as run_at
  from clock cross join unnest(:due_lanes::text[], :due_ages::float8[]) as l (lane, age)
  cross join lateral (
    select d.run_at from {schema}.sched as d
    where d.lane = l.lane and d.run_at >= clock.now - l.age
    order by d.run_at limit 1
  ) as s
),
-- How long that search took: old row versions may have slowed it down.
spent as materialized (
  select extract(epoch from clock_timestamp() - statement_timestamp())::float8 as seconds
  from due
),
go as materialized (
  select coalesce(due.run_at > clock.now, true) and (select count(*) from bounded) >= 0 as ok,
    spent.seconds
  from due, clock, spent
),
{done},
-- The time that the search for jobs takes shows whether old row versions slow it down.
began as materialized (select clock_timestamp() as at from go where go.ok),
lanes as materialized (
  select l.lane, l.room, coalesce(l.passed, 0) as passed, l.n
  from unnest(:lanes::text[], :limits::int4[], :skips::int4[]) with ordinality
    as l (lane, room, passed, n)
  where not exists (select 1 from {schema}.queue as q where q.name = l.lane and q.paused)
),
span as materialized (
  select s.n, s.rank, s.first, s.end_rank, s.last
  from unnest(:range_lanes::int4[], :first_ranks::int2[], :first_ids::uuid[],
    :end_ranks::int2[], :end_ids::uuid[])
    as s (n, rank, first, end_rank, last)
),
chosen as materialized (
  select q.place
  from lanes
  cross join lateral (
    select f.place
    from span
    cross join lateral (
      select r.ctid as place from {schema}.ready as r
      where r.lane = lanes.lane and (r.rank, r.id) >= (span.rank, span.first)
        and (r.rank, r.id) < (span.end_rank, span.last)
        and (:known_tasks::text[] is null or (
          select b.task = any(:known_tasks::text[]) or exists (
            select 1 from unnest(:known_tasks::text[]) as k (name)
            where k.name like '%*' and starts_with(b.task, left(k.name, -1))
          )
          from {schema}.job as b where b.id = coalesce(r.job, r.id)
        ))
      order by r.rank, r.id
      limit lanes.room + lanes.passed
      for update skip locked
    ) as f
    where span.n = lanes.n
    limit lanes.room offset lanes.passed
  ) as q
  where (select at from began) is not null and exists (
    select 1 from {schema}.worker as w
    where w.id = :worker::int4 and not w.rescued and w.expires_at > coalesce(
      :lease_now::float8, extract(epoch from clock_timestamp())::float8
    )
  )
  limit :want::int4
),
taken as (
  delete from {schema}.ready as r where r.ctid = any(array(select place from chosen))
  returning r.lane, r.id as place, coalesce(r.job, r.id) as id, r.job, r.claim_no
),
-- Under a bound the waiting jobs are counted.
counted_out as (
  update {schema}.queue as q set depth = q.depth - s.jobs
  from (
    select lane, count(*) as jobs from taken
    where lane in (select name from bounded) group by lane
  ) as s
  where exists (select 1 from bounded) and q.name = any(array[s.lane])
),
started as (
  insert into {schema}.run (id, worker, claim_no, started_at)
  select taken.id, :worker::int4, taken.claim_no + 1, clock.now from taken, clock
),
started_rows as materialized (
  select array_agg(taken.id order by taken.id) as ids,
    array_agg(taken.claim_no + 1 order by taken.id) as numbers,
    array_agg(taken.id order by taken.id) filter (where taken.job is not null) as ticketed,
    array_agg(taken.place order by taken.id) filter (where taken.job is not null) as tickets
  from taken
),
claimed as materialized (
  select b.id,
    (select numbers from started_rows)[width_bucket(b.id, (select ids
      from started_rows))] as claim_no,
    b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost, b.snoozed, b.opts,
    b.parked_at, b.ukey, b.umode, b.held, case when b.id = any((select ticketed from started_rows)::uuid[])
      then (select tickets from started_rows)[width_bucket(b.id, (select ticketed
        from started_rows))]::text end as ticket
  from {schema}.job as b where b.id = any((select ids from started_rows)::uuid[])
),
-- Keys of done jobs, and keys that hold only while the job waits: as in `free_key`. Arrays,
-- not a join: when a row has changed, the server checks it again, and would run a join anew.
keys_to_free as materialized (
  select array_agg(ended.ukey) as keys, array_agg(ended.id) as ids
  from (
    select ukey, id from ended_jobs
    where ukey is not null and (umode <> 2 or (keep_seconds <= 0 and keep_count is null))
    union all
    select ukey, id from claimed where umode = 0
  ) as ended
),
freed as materialized (
  select u.ctid as place from {schema}.uniq as u
  where u.key = any((select keys from keys_to_free)::bytea[])
    and u.id = any((select ids from keys_to_free)::uuid[])
  for update skip locked
),
freed_keys as (
  delete from {schema}.uniq as u where u.ctid = any(array(select place from freed))
),
-- What done jobs append to logs, and the places that jobs give back at gates; nearly always
-- nothing. It waits for the claims, because logs and gates are locked last.
appended as materialized (
  select {schema}.end_exchange_1(e.ids, e.ties, e.results, e.held, c.ids, clock.now) as result
  from clock, (
    select array_agg(claimed.id) as ids from claimed where claimed.held is not null
  ) as c, (
    select array_agg(j.id order by j.n) as ids, array_agg(j.ties order by j.n) as ties,
      array_agg(j.result order by j.n) as results, array_agg(j.held order by j.n) as held
    from ended_jobs as j where j.ties is not null
  ) as e
  where e.ids is not null or c.ids is not null
)
select null::uuid, null::int4, null::text, null::int2, null::text, null::bytea, null::int4,
  null::int4, null::int2, null::int4, null::bytea, null::float8,
  (select ok from go), (select due.run_at - clock.now from due, clock), (
    select extract(epoch from clock_timestamp() - (select at from began))::float8
    from (select count(*) as jobs from chosen) as looked where looked.jobs >= 0
  ), array(
    select d.n::int4 from unnest(:ids::uuid[]) with ordinality as d (id, n)
    where d.n not in (select finished.n from finished)
  ), (select seconds from go), (select result from appended)
union all
{claims_found}

-- name: claim_idle(worker, lane, limit, now, lease_now)
-- only here: see `exchange`.
-- `exchange` without outcomes, for one lane from its first job on: what an idle worker needs
-- when it is woken. The server sets up each part of a statement before it runs any, and
-- `exchange` has three times as many. The first row says true, or why nothing was done: false if
-- a job is due, null if the queue has a bound.
with
clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
due as materialized (
  select s.run_at from {schema}.sched as s where s.lane = :lane::text order by s.run_at limit 1
),
go as materialized (
  select
    case when exists (
      select 1 from {schema}.queue as q
      where q.name = :lane::text and (q.maxsize is not null or q.hand_maxsize is not null)
    ) then null else coalesce((select run_at from due) > clock.now, true) end as ok,
    clock_timestamp() as at
  from clock
),
chosen as materialized (
  select r.ctid as place from {schema}.ready as r
  where r.lane = :lane::text and (select ok from go)
    and not exists (select 1 from {schema}.queue as q where q.name = :lane::text and q.paused)
    and exists (
      select 1 from {schema}.worker as w
      where w.id = :worker::int4 and not w.rescued and w.expires_at > coalesce(
        :lease_now::float8, extract(epoch from clock_timestamp())::float8
      )
    )
  order by r.rank, r.id
  limit :limit::int4
  for update skip locked
),
taken as (
  delete from {schema}.ready as r where r.ctid = any(array(select place from chosen))
  returning r.id as place, coalesce(r.job, r.id) as id, r.job, r.claim_no
),
started as (
  insert into {schema}.run (id, worker, claim_no, started_at)
  select taken.id, :worker::int4, taken.claim_no + 1, clock.now from taken, clock
),
claimed as materialized (
  select b.id, taken.claim_no + 1 as claim_no, b.lane, b.rank, b.task, b.payload, b.retried,
    b.losses, b.lost, b.snoozed, b.opts, b.parked_at, b.ukey, b.umode, b.held,
    case when taken.job is not null then taken.place::text end as ticket
  from taken join {schema}.job as b on b.id = any(array[taken.id])
),
freed as materialized (
  select u.ctid as place from {schema}.uniq as u
  where u.key = any(array(select ukey from claimed where umode = 0))
    and u.id = any(array(select id from claimed where umode = 0))
  for update skip locked
),
freed_keys as (
  delete from {schema}.uniq as u where u.ctid = any(array(select place from freed))
)
select null::uuid, null::int4, null::text, null::int2, null::text, null::bytea, null::int4,
  null::int4, null::int2, null::int4, null::bytea, null::float8,
  go.ok, (select due.run_at - clock.now from due, clock), (
    select extract(epoch from clock_timestamp() - go.at)::float8
    from (select count(*) as jobs from chosen) as looked where looked.jobs >= 0
  ), null::int4[], extract(epoch from go.at - statement_timestamp())::float8, (
    select {schema}.end_exchange_1(null, null, null, null, array_agg(c.id), max(clock.now))
    from claimed as c, clock where c.held is not null having count(*) > 0
  )
from go
union all
{claims_found}

-- name: claim_jobs(worker, lanes, limits, skips, want, known_tasks, now, lease_now, range_lanes, first_ranks, first_ids, end_ranks, end_ids, due_lanes, due_ages)
-- only here: SQLite claims lane by lane (`look_ready`, `claim_ready`).
-- Claims from these lanes. The caller has made due jobs ready before. Parameters as in
-- `exchange`. The first row is about the call, every other row is a claim.
with
clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
head as materialized (
  select l.lane, s.run_at
  from clock cross join unnest(:due_lanes::text[], :due_ages::float8[]) as l (lane, age)
  cross join lateral (
    select d.run_at from {schema}.sched as d
    where d.lane = l.lane and d.run_at >= clock.now - l.age
    order by d.run_at limit 1
  ) as s
),
due as materialized (select min(head.run_at) as run_at from head),
began as materialized (select clock_timestamp() as at),
lanes as materialized (
  select l.lane, l.room, coalesce(l.passed, 0) as passed, l.n
  from unnest(:lanes::text[], :limits::int4[], :skips::int4[]) with ordinality
    as l (lane, room, passed, n)
  where not exists (select 1 from {schema}.queue as q where q.name = l.lane and q.paused)
),
span as materialized (
  select s.n, s.rank, s.first, s.end_rank, s.last
  from unnest(:range_lanes::int4[], :first_ranks::int2[], :first_ids::uuid[],
    :end_ranks::int2[], :end_ids::uuid[])
    as s (n, rank, first, end_rank, last)
),
chosen as materialized (
  select q.lane, q.rank, q.id
  from lanes
  cross join lateral (
    select f.lane, f.rank, f.id
    from span
    cross join lateral (
      select r.lane, r.rank, r.id from {schema}.ready as r
      where r.lane = lanes.lane and (r.rank, r.id) >= (span.rank, span.first)
        and (r.rank, r.id) < (span.end_rank, span.last)
        and (:known_tasks::text[] is null or (
          select b.task = any(:known_tasks::text[]) or exists (
            select 1 from unnest(:known_tasks::text[]) as k (name)
            where k.name like '%*' and starts_with(b.task, left(k.name, -1))
          )
          from {schema}.job as b where b.id = coalesce(r.job, r.id)
        ))
      order by r.rank, r.id
      limit lanes.room + lanes.passed
      for update skip locked
    ) as f
    where span.n = lanes.n
    limit lanes.room offset lanes.passed
  ) as q
  where (select at from began) is not null and exists (
    select 1 from {schema}.worker as w
    where w.id = :worker::int4 and not w.rescued and w.expires_at > coalesce(
      :lease_now::float8, extract(epoch from clock_timestamp())::float8
    )
  )
  limit :want::int4
),
-- By key, and only rows that are still there: the transaction that has locked a row takes it.
-- Sorted, so that all rows are chosen before the first one is deleted: a lane that is named
-- again counts the rows that it has chosen before. A join by `any(array[...])` is always an
-- index probe (statements.py).
taken as (
  delete from {schema}.ready as r
  using (select chosen.lane, chosen.rank, chosen.id from chosen order by chosen.lane,
    chosen.rank, chosen.id) as chosen
  where r.lane = any(array[chosen.lane]) and r.rank = chosen.rank and r.id = chosen.id
  returning r.lane, r.id as place, coalesce(r.job, r.id) as id, r.job, r.claim_no
),
counted_out as (
  update {schema}.queue as q set depth = q.depth - s.jobs
  from (select lane, count(*) as jobs from taken group by lane) as s
  where q.name = any(array[s.lane]) and coalesce(q.hand_maxsize, q.maxsize) >= 0
),
started as (
  insert into {schema}.run (id, worker, claim_no, started_at)
  select taken.id, :worker::int4, taken.claim_no + 1, clock.now from taken, clock
),
claimed as materialized (
  select b.id, taken.claim_no + 1 as claim_no, b.lane, b.rank, b.task, b.payload, b.retried,
    b.losses, b.lost, b.snoozed, b.opts, b.parked_at, b.ukey, b.umode, b.held,
    case when taken.job is not null then taken.place::text end as ticket
  from taken join {schema}.job as b on b.id = any(array[taken.id])
)
-- Keys that hold only while the job waits are freed. A job that was due before this
-- transaction began was made ready, or another transaction has locked it.
select null::uuid, null::int4, null::text, null::int2, null::text, null::bytea, null::int4,
  null::int4, null::int2, null::int4, null::bytea, null::float8,
  true, (select due.run_at - clock.now from due, clock), (
    select extract(epoch from clock_timestamp() - (select at from began))::float8
    from (select count(*) as jobs from chosen) as looked where looked.jobs >= 0
  ), null::int4[], null::float8, null::text,
  array(select ukey from claimed where umode = 0 order by id),
  array(select id from claimed where umode = 0 order by id),
  array(select id from claimed where held is not null),
  array(
    select head.lane from head
    where head.run_at <= coalesce(:now::float8, extract(epoch from now())::float8)
  )
union all
select * from (
  select id, claim_no, lane, rank, task, payload, retried, losses, lost, snoozed, opts,
    parked_at, null::bool, null::float8, null::float8, null::int4[], null::float8, ticket,
    null::bytea[], null::uuid[], null::uuid[], null::text[]
  from claimed
  order by rank, coalesce(ticket::uuid, id)
) as claims

-- name: promote_lane(lanes, now, limit, ages)
-- Makes due jobs of these lanes ready, at most `limit` per lane. `ages`: for each lane, for
-- how many seconds at most the jobs have been due.
-- A join by `any(array[...])` is always an index probe (statements.py).
with
clock as materialized (
  select coalesce(:now::float8, extract(epoch from clock_timestamp())::float8) as now
),
due_jobs as materialized (
  select s.lane, s.run_at, s.id
  from clock cross join unnest(:lanes::text[], :ages::float8[]) as l (lane, age)
  cross join lateral (
    select d.lane, d.run_at, d.id from {schema}.sched as d
    where d.lane = l.lane and d.run_at between clock.now - l.age and clock.now
    order by d.run_at, d.id
    limit :limit::int4
    for update skip locked
  ) as s
),
taken as (
  delete from {schema}.sched as s using due_jobs
  where s.lane = any(array[due_jobs.lane]) and s.run_at = due_jobs.run_at and s.id = due_jobs.id
  returning s.id, s.claim_no, s.run_at
),
promoted as materialized (
  select b.lane, b.rank, b.id, taken.claim_no, taken.run_at,
    b.ties::jsonb -> 3 is not null as enters
  from taken join {schema}.job as b on b.id = any(array[taken.id])
),
new_ready as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select lane, rank, id, claim_no from promoted
)
select lane, rank, min(id::text)::uuid, count(*)::int4,
  array_agg(id order by run_at, id) filter (where enters)
from promoted group by lane, rank

-- name: read_held_claims(worker)
-- All jobs that run under this worker: the reply that contained these claims was lost.
-- A join by `any(array[...])` is always an index probe (statements.py).
select b.id, r.claim_no, b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost,
  b.snoozed, b.opts, b.parked_at
from {schema}.run as r join {schema}.job as b on b.id = any(array[r.id])
where r.worker = :worker::int4
order by b.rank, b.id
