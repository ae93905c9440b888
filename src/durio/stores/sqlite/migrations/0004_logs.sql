-- Logs, and jobs that wait for them.

-- What the job waits for, and what it appends when it ends: model/ties.py. Null for most.
alter table job add column ties text;

create table log (
  name text primary key,
  length integer not null default 0,    -- the offset of the next entry
  has_more integer not null default 0,  -- jobs are left whose wait is over; upkeep goes on
  expires_at real
) strict, without rowid;

create index log_has_more on log (name) where has_more;
create index log_expires on log (expires_at) where expires_at is not null;

create table entry (
  log text not null,
  off integer not null,
  at real not null,
  tag integer not null,
  state integer,                        -- of the job that ended, and its id
  job blob,
  uid text,                             -- a log takes one entry with this id
  body blob,
  primary key (log, off)
) strict, without rowid;

create unique index entry_uid on entry (log, uid) where uid is not null;

-- The jobs in state 1, blocked, by their arrival. A table of its own, because one more index
-- of `job` would cost every job.
create table waits (
  seq integer primary key,
  log text not null,
  above integer not null,               -- the wait is over when the log is longer
  delay real not null,                  -- seconds to wait after that
  queue text not null
) strict;

create index waits_log on waits (log, above);
create index waits_queue on waits (queue);

-- What a worker must know to run the jobs of its App: 1 is the ties of jobs. A worker of an
-- older version would ignore them, so it can neither register nor renew any more.
alter table worker add column protocol integer not null default 0;

create table protocol (
  namespace text primary key,
  required integer not null
) strict, without rowid;

create trigger worker_registers before insert on worker
when new.protocol < (select required from protocol where namespace = new.namespace)
begin
  select raise(abort, 'this worker is too old for the plans of its App: upgrade Durio');
end;

create trigger worker_renews before update of expires_at on worker
when new.protocol < (select required from protocol where namespace = new.namespace)
begin
  select raise(abort, 'this worker is too old for the plans of its App: upgrade Durio');
end;
