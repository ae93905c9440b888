-- Jobs, their keys, queues, workers and leases.
--
-- A queue in PostgreSQL dies of the row versions that it leaves behind. So the happy path
-- updates nothing: a live job is one row of `job` and one row of a narrow lane (`ready`,
-- `sched` or `run`), both inserted and deleted, and what is over is appended to a history
-- that leaves by whole days. All times are seconds since the epoch.
--
-- Columns of a fixed width come first: no byte is lost between them.
--
-- Names are compared byte by byte ("C"), in this order by us as well: a namespace is a
-- span of its lanes, and locks are taken in the order of names.

create table {schema}.job (
  id uuid primary key,                      -- made by the producer, and grows with time
  created_at float8 not null,
  run_at float8,
  parked_at float8,                         -- since when nobody knew its task
  retried int4 not null default 0,
  losses int4 not null default 0,
  snoozed int4 not null default 0,
  lost int2 not null default 0,
  rank int2 not null,                       -- 9 - priority, so that every index ascends
  umode int2,
  lane text collate "C" not null,           -- `<namespace>:<queue>`
  task text not null,
  payload bytea not null,
  ukey bytea,                               -- the idempotency key it came with
  opts bytea,
  errors bytea[]                           -- one JSON object each, the newest 50
) with (fillfactor = 90);

-- First in, first out by id within a rank: no column of these is ever updated.
create table {schema}.ready (
  lane text collate "C" not null,
  rank int2 not null,
  id uuid not null,
  claim_no int4 not null default 0,         -- the fence: it only grows
  primary key (lane, rank, id)
);

create table {schema}.sched (
  lane text collate "C" not null,
  run_at float8 not null,
  id uuid not null,
  claim_no int4 not null default 0,
  primary key (lane, run_at, id)
);

-- Whoever holds a job by its id alone (a cancel, a rewrite) finds its lane row by `job`.
create table {schema}.run (
  id uuid primary key,
  worker int4 not null,
  claim_no int4 not null,
  started_at float8 not null,
  cancel bool not null default false,       -- somebody asked to cancel it while it runs
  alone bool not null default false,        -- it runs alone: a loss now convicts it
  progress bytea
) with (fillfactor = 70);

-- For rescue and resync only: a finish says `worker + 0` and never comes here.
create index run_worker on {schema}.run (worker);

-- Jobs that are done and stay as long as all do: appended, read by id, dropped by the day.
create table {schema}.hist (
  id uuid not null,
  created_at float8 not null,
  finished_at float8 not null,
  started_at float8,
  run_at float8,
  result_until float8,
  retried int4 not null,
  losses int4 not null,
  snoozed int4 not null,
  claim_no int4 not null,
  lost int2 not null,
  rank int2 not null,
  state int2 not null,
  umode int2,
  lane text collate "C" not null,
  task text not null,
  payload bytea not null,
  opts bytea,
  errors bytea[],
  progress bytea,
  result bytea,
  ukey bytea
) partition by range (finished_at);

create index hist_id on {schema}.hist (id);

-- A net for days that nobody has made in time: a late leader cannot stop a finish.
create table {schema}.hist_default partition of {schema}.hist default;

-- Every other job that is over: dead, cancelled, or done with a retention of its own.
create table {schema}.kept (
  id uuid primary key,
  created_at float8 not null,
  finished_at float8 not null,
  started_at float8,
  run_at float8,
  result_until float8,
  retried int4 not null,
  losses int4 not null,
  snoozed int4 not null,
  claim_no int4 not null,
  lost int2 not null,
  rank int2 not null,
  state int2 not null,
  umode int2,
  lane text collate "C" not null,
  task text not null,
  payload bytea not null,
  opts bytea,
  errors bytea[],
  progress bytea,
  result bytea,
  ukey bytea,
  died_no int8,                             -- the how-manieth death; null: not dead
  gone_at float8 not null,                  -- when retention may take it
  keep_count int4,
  reason text,
  bucket text                              -- kept by count: the newest `keep_count` of it
);

create index kept_gone on {schema}.kept (gone_at) where state <> 5;
create index kept_dead on {schema}.kept (finished_at, lane) where state = 5;
create index kept_bucket on {schema}.kept (bucket, finished_at) where bucket is not null;

-- Enqueues that were sent twice, for a while: the first may still be on its way.
create table {schema}.repeated (
  id uuid primary key,
  until float8 not null
);

-- A first try asks after its insert, by a snapshot that is younger than its rows: one that
-- stood still in between may have begun before its repeat, which has run and is gone by now.
create function {schema}.check_first(ids uuid[]) returns bool language plpgsql as $$
begin
  if exists (select 1 from {schema}.repeated)
    and exists (select 1 from {schema}.repeated r where r.id = any(ids))
  then
    raise unique_violation using message = 'a repeat of this enqueue has been stored';
  end if;
  return true;
end
$$;

-- Who holds an idempotency key. `until` is the end of a window, null without one.
create table {schema}.uniq (
  key bytea primary key,
  id uuid not null,
  mode int2 not null,
  digest bytea not null,
  until float8
);

create index uniq_until on {schema}.uniq (until) where until is not null;

-- Every lane that ever got a job: nobody has to ask the jobs which lanes there are.
create table {schema}.queue (
  name text collate "C" primary key,
  paused bool not null default false,       -- gives no jobs to workers
  closed bool not null default false,       -- takes no new jobs
  maxsize int8,                             -- what the code says
  is_default bool not null default false,   -- nobody chose that bound
  hand_maxsize int8,                        -- by hand, beats the code; -1: none
  depth int8 not null default 0,            -- waiting jobs; kept true only under a bound
  is_over int8 not null default 0           -- the soft bound that it was seen beyond
) with (fillfactor = 50);

-- Every enqueue asks this index which queues need watching: mostly none.
create index queue_guarded on {schema}.queue (name)
where maxsize is not null or hand_maxsize is not null or is_over > 0 or closed;

create index queue_paused on {schema}.queue (name) where paused;

-- Jobs that came into bounded queues by the transactions of others, who may take their time
-- and must not lock a queue meanwhile: whoever locks it next counts them.
create table {schema}.entered (
  lane text collate "C" not null,
  jobs int8 not null
);

create index entered_lane on {schema}.entered (lane);

create table {schema}.worker (
  id int4 generated always as identity primary key,
  namespace text not null,
  queues text,                              -- a JSON list; null serves every queue
  info text not null,                       -- for people
  expires_at float8 not null,
  rescued bool not null default false,      -- a rescue has begun: it never renews again
  vitals text
) with (fillfactor = 50);

create table {schema}.lease (
  name text primary key,
  holder int4 not null,
  token int8 not null,
  expires_at float8 not null
) with (fillfactor = 50);

-- Small documents by kind and name: what workers publish about their tasks.
create table {schema}.doc (
  kind text collate "C" not null,
  name text collate "C" not null,
  body text not null,
  primary key (kind, name)
);

-- What workers are asked to do, and what they answered.
create table {schema}.command (
  id int8 generated always as identity primary key,
  worker int4 not null,
  verb text not null,
  asked_at float8 not null,
  answered_at float8,
  answer text
);

create index command_open on {schema}.command (worker) where answered_at is null;

-- What people did by hand.
create table {schema}.audit (
  seq int8 generated always as identity primary key,
  at float8 not null,
  namespace text not null,
  who text not null,
  verb text not null,
  target text not null,
  jobs int8 not null
);

-- Dead letters ever, by kind: it only grows. The row without names numbers the deaths.
create table {schema}.tally (
  lane text collate "C" not null,
  task text collate "C" not null,
  error_type text collate "C" not null,
  dead int8 not null,
  primary key (lane, task, error_type)
) with (fillfactor = 50);

-- Lanes turn over within seconds: vacuum by count, not by share, and without pauses.
alter table {schema}.ready set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table {schema}.run set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table {schema}.sched set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table {schema}.job set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
