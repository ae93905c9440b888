-- Bounded queues, hands on them, and what workers say of themselves.

-- Code declares a bound; one set by hand beats it, -1 by hand means none.
alter table queue add column maxsize integer;
-- Nobody chose that bound: it is the default of an embedded worker or of memory.
alter table queue add column is_default integer not null default 0;
alter table queue add column hand_maxsize integer;
-- Waiting jobs (ready, scheduled, blocked); kept true only while a bound holds.
alter table queue add column depth integer not null default 0;
-- The soft bound that it was seen beyond; 0: it is below.
alter table queue add column is_over integer not null default 0;
alter table queue add column closed integer not null default 0;   -- takes no new jobs

-- Every write asks this index which queues need watching: mostly none.
create index queue_guarded on queue (name)
where maxsize is not null or hand_maxsize is not null or is_over or closed;

-- A renewal asks for these: mostly none.
create index queue_paused on queue (name) where paused;

alter table worker add column vitals text;

-- The how-manieth death it was: a bulk act leaves alone what died after it was counted.
alter table job add column died_no integer;

-- What workers are asked to do, and what they answered.
create table command (
  id integer primary key autoincrement,
  worker integer not null,
  verb text not null,
  asked_at real not null,
  answered_at real,
  answer text
) strict;

create index command_open on command (worker) where answered_at is null;

-- What people did by hand.
create table audit (
  seq integer primary key autoincrement,
  at real not null,
  namespace text not null,
  who text not null,
  verb text not null,
  target text not null,
  jobs integer not null
) strict;

-- Dead letters ever, by kind: it only grows. The row without names numbers the deaths.
create table tally (
  queue text not null,
  task text not null,
  error_type text not null,
  dead integer not null,
  primary key (queue, task, error_type)
) strict, without rowid;
