-- Logs, and jobs that wait for them.
--
-- Lock order of the functions: heads of logs by name, then rows of `waits` and `sched`, these
-- only with `skip locked`. Heads are the last locks of a transaction but for counters. Only
-- the creation of a head, and a patient caller, wait for another transaction. Functions have
-- a number and never change: two releases may work side by side.

-- What the job waits for, and what it appends when it ends: model/ties.py. Null for most.
alter table {schema}.job add column ties text;
alter table {schema}.kept add column ties text;

-- The heads of logs. An entry is inserted under the lock of its head, to the commit: offsets
-- have no gaps, and a reader never skips one.
create table {schema}.log (
  name text collate "C" primary key,
  length int8 not null default 0,           -- the offset of the next entry
  has_more bool not null default false,     -- jobs are left whose wait is over; `settle` goes on
  deferred_from xid8 not null default '0',  -- older transactions have no row left in `deferred`
  expires_at float8
) with (fillfactor = 50);

create index log_has_more on {schema}.log (name) where has_more;
create index log_expires on {schema}.log (expires_at) where expires_at is not null;

create table {schema}.entry (
  log text collate "C" not null,
  off int8 not null,
  at float8 not null,
  tag int8 not null,
  state int2,                               -- of the job that ended, and its id
  job uuid,
  uid text collate "C",                     -- a log takes one entry with this id
  body bytea,
  primary key (log, off)
);

create unique index entry_uid on {schema}.entry (log, uid) where uid is not null;

-- The blocked jobs. Such a job also has a row in `sched`, due at infinity.
create table {schema}.waits (
  log text collate "C" not null,
  above int8 not null,                      -- the wait is over when the log is longer
  id uuid not null,
  delay float8 not null,                    -- seconds to wait after that,
  run_at float8,                            -- and not before this time
  primary key (log, above, id)
);

-- Appends that found the head of their log locked, or that came in a transaction which may be
-- long: the next transaction that locks the head appends them. Without a tag there is no
-- entry: only jobs whose wait may be over. Rows are read from a transaction on, so that dead
-- versions, which stay while an old snapshot is open, are not read again: every transaction
-- that is older than the oldest running one has ended, and its rows were visible.
create table {schema}.deferred (
  log text collate "C" not null,
  xid xid8 not null default pg_current_xact_id(),
  seq int8 generated always as identity,
  tag int8,
  ttl float8,                               -- seconds until the log expires
  state int2,
  job uuid,
  uid text collate "C",
  body bytea,
  primary key (log, xid, seq)
);

create index deferred_xid on {schema}.deferred (xid);

-- One row: older transactions have no row left in `deferred`, of any log.
create table {schema}.deferred_from (xid xid8 not null);

insert into {schema}.deferred_from (xid) values ('0');

alter table {schema}.log set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table {schema}.waits set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table {schema}.deferred set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- A stored transaction to read from; all of them if it is of another server: a restored copy
-- of the database.
create function {schema}.read_from_1(mark xid8) returns xid8 language sql stable as $$
  select case when mark <= pg_snapshot_xmin(pg_current_snapshot()) then mark else '0'::xid8 end
$$;

-- Creates missing heads and locks them; returns the names of those that it has locked. All
-- heads are created before one is locked, so that a transaction which has locked a head waits
-- for no other, unless it is patient; and patient ones lock in the order of names.
create function {schema}.lock_logs_1(
  names text[], is_patient bool, out locked text[], out has_deferred bool
) language plpgsql as $$
begin
  if (
    select count(*) from {schema}.log as l where l.name = any(names)
  ) < cardinality(names) then
    insert into {schema}.log (name)
    select u.name from unnest(names) as u (name)
    where (select 1 from {schema}.log as l where l.name = u.name) is null
    order by u.name collate "C"
    on conflict (name) do nothing;
  end if;
  if is_patient then
    perform 1 from {schema}.log as l where l.name = any(names) order by l.name for update;
  end if;
  -- A row that is deferred while this statement runs is found later, by who deferred it.
  select array_agg(h.name), bool_or((
    select 1 from {schema}.deferred as d
    where d.log = h.name and d.xid >= {schema}.read_from_1(h.deferred_from) limit 1
  ) is not null)
  into locked, has_deferred
  from (
    select l.name, l.deferred_from from {schema}.log as l
    where l.name = any(names) order by l.name
    for update skip locked
  ) as h;
  locked := coalesce(locked, '{}');
  has_deferred := coalesce(has_deferred, false);
end
$$;

-- Appends to logs that are locked. Returns whether a wait for one of them is over. The caller
-- has locked the heads by a statement before this one. For entries without ids, if nothing is
-- deferred: nearly always.
create function {schema}.append_plain_1(
  locked text[], logs text[], tags int8[], states int2[], jobs uuid[], bodies bytea[],
  moment float8
) returns bool language plpgsql as $$
declare
  is_over bool;
begin
  with
  incoming as materialized (
    select u.log, u.tag, u.state, u.job, u.body,
      row_number() over (partition by u.log order by u.place) as n
    from unnest(logs, tags, states, jobs, bodies) with ordinality
      as u (log, tag, state, job, body, place)
    where u.log = any(locked)
  ),
  written as (
    insert into {schema}.entry (log, off, at, tag, state, job, body)
    select i.log, l.length + i.n - 1, moment, i.tag, i.state, i.job, i.body
    from incoming as i join {schema}.log as l on l.name = any(array[i.log])
  ),
  grown as (
    update {schema}.log as l set length = l.length + s.entries
    from (select i.log, max(i.n) as entries from incoming as i group by i.log) as s
    where l.name = any(array[s.log])
    returning l.name, l.length
  )
  select bool_or((
    select 1 from {schema}.waits as w where w.log = g.name and w.above < g.length limit 1
  ) is not null)
  into is_over from grown as g;
  return coalesce(is_over, false);
end
$$;

-- `append_plain_1` for the other cases: first appends what was deferred, at most 5,000 rows,
-- then these entries. An entry whose id the log already has is left out. Returns how many
-- deferred rows it has removed.
create function {schema}.append_all_1(
  locked text[], direct text[], logs text[], tags int8[], ttls float8[], states int2[],
  jobs uuid[], uids text[], bodies bytea[], moment float8
) returns int8 language plpgsql as $$
declare
  removed int8;
  oldest xid8;
begin
  with
  applied as (
    delete from {schema}.deferred as d
    where d.ctid = any(array(
      select q.place
      from {schema}.log as l
      cross join lateral (
        select r.ctid as place from {schema}.deferred as r
        where r.log = l.name and r.xid >= {schema}.read_from_1(l.deferred_from)
        order by r.xid, r.seq limit 5000
      ) as q
      where l.name = any(locked)
      limit 5000
    ))
    returning d.log, d.xid, d.seq, d.tag, d.ttl, d.state, d.job, d.uid, d.body
  ),
  incoming as materialized (
    select 0 as part, row_number() over (order by a.xid, a.seq) as place,
      a.log, a.tag, a.ttl, a.state, a.job, a.uid, a.body
    from applied as a
    union all
    select 1, u.place, u.log, u.tag, u.ttl, u.state, u.job, u.uid, u.body
    from unnest(logs, tags, ttls, states, jobs, uids, bodies) with ordinality
      as u (log, tag, ttl, state, job, uid, body, place)
    where u.log = any(direct)
  ),
  judged as materialized (
    select i.*, i.tag is not null and (i.uid is null or (
      row_number() over (partition by i.log, i.uid order by i.part, i.place) = 1
      and (select 1 from {schema}.entry as e where e.log = i.log and e.uid = i.uid) is null
    )) as is_new
    from incoming as i
  ),
  numbered as materialized (
    select j.*, row_number() over (partition by j.log, j.is_new order by j.part, j.place) as n
    from judged as j
  ),
  written as (
    insert into {schema}.entry (log, off, at, tag, state, job, uid, body)
    select n.log, l.length + n.n - 1, moment, n.tag, n.state, n.job, n.uid, n.body
    from numbered as n join {schema}.log as l on l.name = any(array[n.log])
    where n.is_new
  ),
  grown as (
    update {schema}.log as l
    set length = l.length + s.entries,
      expires_at = coalesce(moment + s.ttls[cardinality(s.ttls)], l.expires_at)
    from (
      select n.log, count(*) filter (where n.is_new) as entries,
        array_agg(n.ttl order by n.part, n.place) filter (where n.ttl is not null) as ttls
      from numbered as n group by n.log
    ) as s
    where l.name = any(array[s.log]) and (s.entries > 0 or s.ttls is not null)
  )
  select count(*), pg_snapshot_xmin(pg_current_snapshot()) into removed, oldest from applied;
  if removed between 1 and 4999 then
    update {schema}.log as l set deferred_from = oldest where l.name = any(locked);
  end if;
  return removed;
end
$$;

-- Lets jobs go whose wait is over, `room` in all, and marks the logs of the others. A job
-- whose row another transaction has locked is left. Returns the jobs by lane and rank, as
-- JSON, with the lowest id; their number; and what is left: 0 nothing, 1 locked jobs, 2 more
-- than `room`. The caller has locked the heads by a statement before this one.
create function {schema}.end_waits_1(
  locked text[], room int4, moment float8,
  out places text, out jobs int4, out rest int4
) language plpgsql as $$
begin
  jobs := 0;
  rest := 0;
  if not exists (
    select 1 from {schema}.log as l
    where l.name = any(locked) and (
      select 1 from {schema}.waits as w where w.log = l.name and w.above < l.length limit 1
    ) is not null
  ) then
    return;
  end if;
  with
  open_waits as materialized (
    select q.log, q.above, q.id, q.delay, q.run_at
    from {schema}.log as l
    cross join lateral (
      select w.log, w.above, w.id, w.delay, w.run_at from {schema}.waits as w
      where w.log = l.name and w.above < l.length
      order by w.above, w.id
      limit room
      for update skip locked
    ) as q
    where l.name = any(locked)
    limit room
  ),
  ended as materialized (
    select f.log, f.above, j.id, j.lane, j.rank, p.claim_no, p.place,
      greatest(f.run_at, moment + f.delay) as due
    from open_waits as f
    cross join lateral (
      select b.id, b.lane, b.rank from {schema}.job as b where b.id = f.id
      for update skip locked
    ) as j
    cross join lateral (
      select s.claim_no, s.ctid as place from {schema}.sched as s
      where s.lane = j.lane and s.run_at = 'infinity' and s.id = j.id
      for update skip locked
    ) as p
  ),
  left_scheduled as (
    delete from {schema}.sched as s where s.ctid = any(array(select e.place from ended as e))
  ),
  left_waits as (
    delete from {schema}.waits as w using ended as e
    where w.log = any(array[e.log]) and w.above = e.above and w.id = e.id
  ),
  -- The job is gone: it was removed by hand.
  lost_waits as (
    delete from {schema}.waits as w using open_waits as f
    where w.log = any(array[f.log]) and w.above = f.above and w.id = f.id
      and (select 1 from {schema}.job as b where b.id = f.id) is null
  ),
  changed_jobs as (
    update {schema}.job as b set run_at = e.due from ended as e where b.id = any(array[e.id])
  ),
  new_scheduled as (
    insert into {schema}.sched (lane, run_at, id, claim_no)
    select e.lane, e.due, e.id, e.claim_no from ended as e where e.due > moment
  ),
  new_ready as (
    insert into {schema}.ready (lane, rank, id, claim_no)
    select e.lane, e.rank, e.id, e.claim_no from ended as e where e.due <= moment
  )
  select json_agg(json_build_array(p.lane, p.rank, p.lowest))::text, coalesce(sum(p.jobs), 0)
  into places, jobs
  from (
    select e.lane, e.rank, min(e.id::text) as lowest, count(*) as jobs
    from ended as e group by e.lane, e.rank
  ) as p;
  update {schema}.log as l set has_more = true
  where l.name = any(locked) and (
    select 1 from {schema}.waits as w where w.log = l.name and w.above < l.length limit 1
  ) is not null;
  if found then
    rest := case when jobs >= room then 2 else 1 end;
  end if;
end
$$;

-- Appends entries, and lets jobs go that have waited for them. What belongs to a log that
-- another transaction has locked is deferred, unless the caller is patient. A row without a
-- tag only names a log for which new jobs wait. Returns null if there is nothing to tell, or
-- the result of `end_waits_1` as JSON.
create function {schema}.append_entries_1(
  logs text[], tags int8[], ttls float8[], states int2[], jobs uuid[], uids text[],
  bodies bytea[], moment float8, is_patient bool
) returns text language plpgsql as $$
declare
  now_ float8 := coalesce(moment, extract(epoch from clock_timestamp())::float8);
  names text[] := logs;
  held record;
  direct text[];
  freed record;
  rest int4 := 0;
  is_over bool := true;
begin
  if cardinality(logs) > 1 then
    names := array(select distinct u.name from unnest(logs) as u (name));
  end if;
  held := {schema}.lock_logs_1(names, is_patient);
  direct := held.locked;
  if held.has_deferred and (
    select count(*) from (
      select 1 from {schema}.log as l
      cross join lateral (
        select 1 from {schema}.deferred as d
        where d.log = l.name and d.xid >= {schema}.read_from_1(l.deferred_from) limit 5001
      ) as q
      where l.name = any(held.locked)
      limit 5001
    ) as many
  ) > 5000 then
    direct := '{}';  -- deferred entries come first, and they are too many
    rest := 2;
  end if;
  if cardinality(direct) < cardinality(names) then
    insert into {schema}.deferred (log, tag, ttl, state, job, uid, body)
    select u.log, u.tag, u.ttl, u.state, u.job, u.uid, u.body
    from unnest(logs, tags, ttls, states, jobs, uids, bodies) with ordinality
      as u (log, tag, ttl, state, job, uid, body, place)
    where not u.log = any(direct)
    order by u.place;
    rest := greatest(rest, 1);
  end if;
  if cardinality(held.locked) = 0 then
    return json_build_array('[]'::json, 0, rest)::text;
  end if;
  if held.has_deferred or array_position(tags, null) is not null
    or cardinality(array_remove(uids, null)) > 0 or cardinality(array_remove(ttls, null)) > 0
  then
    perform {schema}.append_all_1(
      held.locked, direct, logs, tags, ttls, states, jobs, uids, bodies, now_
    );
  else
    is_over := {schema}.append_plain_1(direct, logs, tags, states, jobs, bodies, now_);
  end if;
  if not is_over then
    return case when rest > 0 then json_build_array('[]'::json, 0, rest)::text end;
  end if;
  freed := {schema}.end_waits_1(held.locked, 1000, now_);
  if freed.jobs = 0 and freed.rest = 0 and rest = 0 then
    return null;
  end if;
  return json_build_array(
    coalesce(freed.places, '[]')::json, freed.jobs, greatest(freed.rest, rest)
  )::text;
end
$$;

-- Appends what done jobs have for their end: `append_entries_1` for the one statement of an
-- exchange. A result of more than 4 KiB stays with its job.
create function {schema}.append_done_1(
  ids uuid[], ties text[], results bytea[], moment float8
) returns text language plpgsql as $$
declare
  logs text[];
  tags int8[];
  jobs uuid[];
  uids text[];
  bodies bytea[];
begin
  select array_agg(t.log), array_agg(t.tag), array_agg(t.id), array_agg(t.uid),
    array_agg(t.body)
  into logs, tags, jobs, uids, bodies
  from (
    select x.ending ->> 0 as log, (x.ending ->> 2)::int8 as tag, e.id,
      case when (x.ending ->> 3)::bool then 'm' || (x.ending ->> 2) end as uid,
      case when length(e.result) <= 4096 then e.result end as body
    from unnest(ids, ties, results) with ordinality as e (id, ties, result, n)
    cross join lateral jsonb_array_elements(e.ties::jsonb -> 1) with ordinality
      as x (ending, n)
    where (x.ending ->> 1)::int8 & 1 <> 0
    order by e.n, x.n
  ) as t;
  if logs is null then
    return null;
  end if;
  return {schema}.append_entries_1(
    logs, tags, array_fill(null::float8, array[cardinality(logs)]),
    array_fill(4::int2, array[cardinality(logs)]), jobs, uids, bodies, moment, false
  );
end
$$;

-- Goes on with what other transactions have left: deferred entries, and jobs of marked logs,
-- at most `room` of them. Logs that are locked are left. Returns the result of `end_waits_1`
-- as JSON, with the number of deferred rows that it has removed.
create function {schema}.settle_logs_1(room int4, moment float8) returns text
language plpgsql as $$
declare
  now_ float8 := coalesce(moment, extract(epoch from clock_timestamp())::float8);
  names text[];
  oldest xid8;
  held record;
  removed int8 := 0;
  freed record;
  rest int4 := 0;
begin
  with
  deferring as materialized (
    select d.log as name, d.xid from {schema}.deferred as d
    where d.xid >= coalesce(
      (select {schema}.read_from_1(f.xid) from {schema}.deferred_from as f), '0'::xid8
    )
    order by d.xid limit 5000
  ),
  marked as (select l.name from {schema}.log as l where l.has_more order by l.name limit 1000)
  select array(
    (select distinct d.name from deferring as d limit 1000)
    union
    select m.name from marked as m
  ), least(
    pg_snapshot_xmin(pg_current_snapshot()),
    (select d.xid from deferring as d order by d.xid limit 1)
  )
  into names, oldest;
  -- Not at each call: old versions of this row are read, too.
  update {schema}.deferred_from as f set xid = oldest
  where f.ctid = any(array(
    select g.ctid from {schema}.deferred_from as g
    where abs(oldest::text::int8 - g.xid::text::int8) > 100
    for update skip locked
  ));
  if cardinality(names) = 0 then
    return null;
  end if;
  held := {schema}.lock_logs_1(names, false);
  if cardinality(held.locked) < cardinality(names) then
    rest := 1;
  end if;
  if held.has_deferred then
    removed := {schema}.append_all_1(
      held.locked, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', now_
    );
    if removed >= 5000 then
      rest := 2;
    end if;
  end if;
  update {schema}.log as l set has_more = false where l.name = any(held.locked) and l.has_more;
  freed := {schema}.end_waits_1(held.locked, room, now_);
  if cardinality(names) >= 1000 and (removed > 0 or freed.jobs > 0) then
    rest := 2;
  end if;
  return json_build_array(
    coalesce(freed.places, '[]')::json, freed.jobs, greatest(freed.rest, rest), removed
  )::text;
end
$$;

-- What a worker must know to run the jobs of its App: 1 is the ties of jobs. A worker of an
-- older version would ignore them, so it can neither register nor renew any more.
alter table {schema}.worker add protocol int2 not null default 0;

create table {schema}.protocol (
  namespace text collate "C" primary key,
  required int2 not null
);

create function {schema}.check_protocol_1() returns trigger language plpgsql as $$
begin
  if new.protocol < (select required from {schema}.protocol where namespace = new.namespace)
  then
    raise exception 'this worker is too old for the plans of its App: upgrade Durio';
  end if;
  return new;
end $$;

create trigger worker_protocol before insert or update of expires_at on {schema}.worker
for each row execute function {schema}.check_protocol_1();
