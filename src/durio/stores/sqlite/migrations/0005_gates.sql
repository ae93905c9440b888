-- Gates, and the jobs that stand before one or have passed.

create table gate (
  name text primary key,
  cap integer,                          -- places; null: unlimited
  used integer not null default 0,      -- places that jobs hold: the bits of `gated.held`
  rate real,                            -- tokens per second; null: unlimited
  burst real not null,
  tokens real not null,                 -- at the time `at`
  at real not null,
  until real,                           -- closed before this time
  due real                              -- upkeep looks then: time alone lets jobs pass
) strict, without rowid;

create index gate_due on gate (due) where due is not null;

-- A job before a gate, in its queue behind its gates, or with a place; one that holds nothing
-- and waits for nothing has no row. A job in state 1, blocked, is before a gate, waits for a
-- log (`waits`), or has passed: then it is ready, and `newest` is set. It has its place in its
-- queue after the job `newest`, the last one stored when it passed. So the index of ready jobs
-- has no entry for it, and plain jobs pay nothing.
create table gated (
  seq integer primary key,              -- of the job
  queue text not null,
  rank integer not null,
  gate text,                            -- it stands before this gate
  ticket integer not null,              -- order of arrival at the gate, or in the queue
  newest integer,
  since real not null,                  -- when it arrived there
  held integer not null                 -- bit n: it holds a place of gate n of its `ties`
) strict;

create index gated_gate on gated (gate, rank, ticket) where gate is not null;
create index gated_queue on gated (queue) where gate is not null;
create index gated_ready on gated (queue, rank, newest, ticket) where newest is not null;

-- The last number of `gated.ticket`.
create table ticket (last integer not null) strict;
insert into ticket values (0);
