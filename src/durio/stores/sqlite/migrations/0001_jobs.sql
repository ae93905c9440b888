-- Jobs, their keys, queues, workers and leases.
--
-- One table for live and final jobs: SQLite has no row versions to leave behind, so
-- there is no reason to split it. Every index of jobs is partial: a job pays only for
-- the state that it is in.

create table job (
  seq integer primary key,              -- arrival: first in, first out
  id blob not null unique,              -- 16 bytes, made by the producer
  queue text not null,                  -- the lane: `<namespace>:<queue>`
  rank integer not null,                -- 9 - priority, so that every index ascends
  state integer not null,               -- model/job.py; `>= 4` is final
  task text not null,
  payload blob not null,
  retried integer not null default 0,
  losses integer not null default 0,
  lost integer not null default 0,
  snoozed integer not null default 0,
  claim_no integer not null default 0,  -- the fence: it only grows
  worker integer,                       -- set while running, and only then
  run_at real,
  parked_at real,                       -- since when nobody knew its task
  started_at real,
  ukey blob,                            -- the idempotency key it came with
  umode integer,
  opts blob,
  errors text,                          -- a JSON list, the newest 50
  progress blob,
  cancel integer not null default 0,    -- somebody asked to cancel it while it ran
  alone integer not null default 0,     -- it runs alone: a loss now convicts it
  created_at real not null,
  finished_at real,
  died_at real,                         -- `finished_at` of dead jobs, see job_dead
  gone_at real,                         -- final: when retention may take it
  result blob,
  result_until real,
  reason text,
  bucket text,                          -- kept by count: the newest `keep_count` of it
  keep_count integer
) strict;

create index job_ready on job (queue, rank, seq) where state = 2;
create index job_scheduled on job (queue, run_at) where state = 0;
create index job_running on job (worker) where state = 3;
create index job_final on job (gone_at) where state >= 4;
-- These two hang on columns that most jobs never touch: they cost a job that simply runs
-- nothing, where a condition on its state would be looked at with every change.
-- With the queue, so that counting dead jobs per queue reads the index alone.
create index job_dead on job (died_at, queue) where died_at is not null;
create index job_bucket on job (bucket, finished_at) where bucket is not null;

-- Who holds an idempotency key. `until` is the end of a window, null without one.
create table uniq (
  key blob primary key,
  id blob not null,
  mode integer not null,
  digest blob not null,
  until real
) strict, without rowid;

create index uniq_until on uniq (until) where until is not null;

-- Every lane that ever got a job: nobody has to ask the jobs which lanes there are.
create table queue (
  name text primary key,
  paused integer not null default 0
) strict, without rowid;

-- Ids are never used again (autoincrement): a dead worker's name stays its own.
-- Leases count on the monotonic clock of one boot: another boot, and the lease is over.
create table worker (
  id integer primary key autoincrement,
  namespace text not null,
  queues text,                          -- a JSON list; null serves every queue
  info text not null,                   -- for people
  boot text not null,
  expires_at real not null,
  has_bell integer not null,
  has_life integer not null,
  rescued integer not null default 0    -- a rescue has begun: it never renews again
) strict;

create table lease (
  name text primary key,
  holder integer not null,
  token integer not null,
  boot text not null,
  expires_at real not null
) strict, without rowid;

-- Small documents by kind and name: what workers publish about their tasks.
create table doc (
  kind text not null,
  name text not null,
  body text not null,
  primary key (kind, name)
) strict, without rowid;
