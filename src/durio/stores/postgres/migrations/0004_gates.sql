-- Gates: rows that let jobs pass, and the jobs that stand before them.
--
-- Lock order of the functions: after logs, gates by name; then rows of `gate_queue`, `job` and
-- `sched`. All of them only with `skip locked`: only the creation of a gate waits for another
-- transaction, and it is for a name above all that are locked. Functions have a number and
-- never change, except `end_waits_1` here, for callers of the release before: they let a job
-- with gates go to its first one.

-- Bit n: the job has a place of gate n of its ties. Null for most.
alter table {schema}.job add column held int2;

-- The job of a row whose `id` is a ticket: its place in the queue since it passed its gates.
alter table {schema}.ready add column job uuid;
create index ready_job on {schema}.ready (job) where job is not null;

create sequence {schema}.ticket;

-- See model/gate.py. A gate without a row is open.
create table {schema}.gate (
  name text collate "C" primary key,
  cap int4,
  used int4 not null default 0,
  rate float8,
  burst float8 not null default 1,
  tokens float8 not null default 1,         -- at the time `at`
  at float8 not null,
  until float8,
  due float8,                               -- jobs wait that may pass then: `settle` looks
  deferred_from xid8 not null default '0'   -- as in `log`
) with (fillfactor = 50);

create index gate_due on {schema}.gate (due) where due is not null;

-- The jobs before gates, by their arrival there. Such a job is blocked: it also has a row in
-- `sched`, due at infinity.
create table {schema}.gate_queue (
  gate text collate "C" not null,
  rank int2 not null,
  ticket int8 not null,
  id uuid not null,
  cost float8 not null,
  primary key (gate, rank, ticket)
);

create index gate_queue_id on {schema}.gate_queue (id);

-- What a transaction does at a gate: it gives places back, or jobs arrive. Whoever locks the
-- gate, mostly the same transaction, does it and deletes the row.
create table {schema}.gate_deferred (
  gate text collate "C" not null,
  xid xid8 not null default pg_current_xact_id(),
  seq int8 generated always as identity,
  places int4 not null default 0,
  cap int4,                                 -- what an arriving job makes of a new gate
  rate float8,
  burst float8,                             -- null: it makes none
  primary key (gate, xid, seq)
);

create index gate_deferred_xid on {schema}.gate_deferred (xid);

-- Of `gate_deferred`, as `xid` is of `deferred`.
alter table {schema}.deferred_from add column gates xid8 not null default '0';

alter table {schema}.gate set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table {schema}.gate_queue set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table {schema}.gate_deferred set (autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Takes a place of `gate`, if `takes`, and returns the next gate of the job: the first one
-- after `gate` of which it has no place.
create function {schema}.next_gate_1(
  ties text, held int2, gate text, takes bool,
  out now_held int2, out next_gate text, out next_cost float8, out cap int4, out rate float8,
  out burst float8
) language sql immutable as $$
  with specs as (
    select x.spec ->> 0 as name, x.spec, 1 << (x.n::int4 - 1) as place
    from jsonb_array_elements(ties::jsonb -> 3) with ordinality as x (spec, n)
  ),
  mine as (
    select coalesce(held, 0)::int4
      | coalesce((select s.place from specs as s where takes and s.name = gate), 0) as places
  )
  select nullif(m.places, 0)::int2, s.name, (s.spec ->> 5)::float8, (s.spec ->> 1)::int4,
    (s.spec ->> 2)::float8, case when coalesce(s.spec ->> 1, s.spec ->> 2) is not null
      then coalesce((s.spec ->> 3)::float8, 1) end
  from mine as m left join lateral (
    select n.* from specs as n
    where (gate is null or n.name collate "C" > gate) and m.places & n.place = 0
    order by n.name collate "C" limit 1
  ) as s on true
$$;

-- Lets jobs stand before their first gates; one that is in `ready` leaves it. A job that has
-- no gate to pass stays where it is.
create function {schema}.enter_gates_1(ids uuid[]) returns void language sql as $$
  with entering as materialized (
    select b.id, b.lane, b.rank, n.next_gate, n.next_cost, n.cap, n.rate, n.burst, u.k
    from unnest(ids) with ordinality as u (id, k)
    join {schema}.job as b on b.id = any(array[u.id])
    cross join lateral {schema}.next_gate_1(b.ties, b.held, null, false) as n
    where n.next_gate is not null
  ),
  left_ready as (
    delete from {schema}.ready as r using entering as e
    where r.lane = any(array[e.lane]) and r.rank = e.rank and r.id = e.id
    returning r.lane, r.id, r.claim_no
  ),
  blocked as (
    insert into {schema}.sched (lane, run_at, id, claim_no)
    select l.lane, 'infinity', l.id, l.claim_no from left_ready as l
  ),
  changed_jobs as (
    update {schema}.job as b set run_at = 'infinity'
    from left_ready as l where b.id = any(array[l.id])
  ),
  queued as (
    insert into {schema}.gate_queue (gate, rank, ticket, id, cost)
    select e.next_gate, e.rank, nextval('{schema}.ticket'), e.id, e.next_cost
    from (select * from entering order by k) as e
  )
  insert into {schema}.gate_deferred (gate, cap, rate, burst)
  select distinct on (e.next_gate) e.next_gate, e.cap, e.rate, e.burst
  from entering as e order by e.next_gate, e.burst is null, e.k
$$;

-- Writes what a transaction does at gates, for `pass_gates_1`: there is nothing else to do in
-- one that may be long.
create function {schema}.defer_gates_1(
  entering uuid[], names text[], places int4[]
) returns void language plpgsql as $$
begin
  if cardinality(entering) > 0 then
    perform {schema}.enter_gates_1(entering);
  end if;
  if cardinality(names) > 0 then
    insert into {schema}.gate_deferred (gate, places)
    select u.name, u.places from unnest(names, places) as u (name, places) where u.places > 0;
  end if;
end
$$;

-- Locks these gates, and creates missing ones that an arriving job makes. Returns those that
-- it has locked or that are open. `above`: the highest name that this transaction may have
-- locked; it waits for no name below.
create function {schema}.lock_gates_1(
  names text[], above text, moment float8, out locked text[]
) language plpgsql as $$
declare
  missing text[] := array(
    select u.name from unnest(names) as u (name)
    where (select 1 from {schema}.gate as g where g.name = u.name) is null
  );
begin
  if cardinality(missing) > 0 then
    insert into {schema}.gate (name, cap, rate, burst, tokens, at)
    select d.gate, d.cap, d.rate, d.burst, d.burst, moment
    from (
      select distinct on (d.gate) d.gate, d.cap, d.rate, d.burst
      from {schema}.gate_deferred as d
      where d.gate = any(missing) and d.gate > above collate "C" and d.burst is not null
      order by d.gate, d.xid, d.seq
    ) as d
    order by d.gate
    on conflict (name) do nothing;
  end if;
  select array_agg(h.name) into locked
  from (
    select g.name from {schema}.gate as g where g.name = any(names) order by g.name
    for update skip locked
  ) as h;
  locked := coalesce(locked, '{}');
  if cardinality(missing) > 0 then
    locked := locked || array(
      select u.name from unnest(missing) as u (name)
      where (select 1 from {schema}.gate as g where g.name = u.name) is null and (
        select 1 from {schema}.gate_deferred as d
        where d.gate = u.name and d.burst is not null limit 1
      ) is null
    );
  end if;
end
$$;

-- Does at locked gates what was deferred, at most 5,000 rows. Returns their number.
create function {schema}.apply_deferred_1(locked text[], moment float8) returns int8
language plpgsql as $$
declare
  removed int8;
  oldest xid8;
begin
  with
  applied as (
    delete from {schema}.gate_deferred as d
    where d.ctid = any(array(
      select q.place
      from unnest(locked) as u (name)
      left join {schema}.gate as g on g.name = any(array[u.name])
      cross join lateral (
        select r.ctid as place from {schema}.gate_deferred as r
        where r.gate = u.name
          and r.xid >= coalesce({schema}.read_from_1(g.deferred_from), '0'::xid8)
        order by r.xid, r.seq limit 5000
      ) as q
      limit 5000
    ))
    returning d.gate, d.xid, d.seq, d.places, d.cap, d.rate, d.burst
  ),
  spec as (
    select distinct on (a.gate) a.gate, a.cap, a.rate, a.burst from applied as a
    where a.burst is not null order by a.gate, a.xid, a.seq
  ),
  total as (select a.gate, sum(a.places)::int4 as places from applied as a group by a.gate),
  changed as (
    update {schema}.gate as g
    set used = g.used - t.places,
      cap = case when t.sets then t.cap else g.cap end,
      rate = case when t.sets then t.rate else g.rate end,
      burst = case when t.sets then t.burst else g.burst end,
      tokens = case when t.sets then t.burst else g.tokens end,
      at = case when t.sets then moment else g.at end
    from (
      select n.name, t.places, s.cap, s.rate, s.burst,
        n.cap is null and n.rate is null and s.burst is not null as sets
      from total as t
      join {schema}.gate as n on n.name = any(array[t.gate])
      left join spec as s on s.gate = t.gate
    ) as t
    where g.name = any(array[t.name]) and (t.places > 0 or t.sets)
  )
  select count(*), pg_snapshot_xmin(pg_current_snapshot()) into removed, oldest from applied;
  if removed between 1 and 4999 then
    -- Not at each call: old versions of these rows are read, too.
    update {schema}.gate as g set deferred_from = oldest
    where g.name = any(locked)
      and abs(oldest::text::int8 - g.deferred_from::text::int8) > 100;
  end if;
  return removed;
end
$$;

-- Lets the first jobs pass that stand before these gates, at most `room`: to the next gate of
-- each, or to their queue with a ticket. A job whose row another transaction has locked is
-- left. The caller has locked the gates by a statement before this one.
create function {schema}.admit_jobs_1(
  locked text[], room int4, moment float8,
  out places jsonb, out jobs int4, out next_gates text[]
) language sql as $$
  with
  open as materialized (
    select u.name, g.cap, g.rate, g.burst,
      case when g.until > moment then 0 else least(room, g.cap - g.used) end as free,
      least(g.burst, g.tokens + greatest(moment - g.at, 0) * g.rate) as tokens
    from unnest(locked) as u (name)
    left join {schema}.gate as g on g.name = any(array[u.name])
  ),
  -- The cost of most jobs is 1. If it is less, `due` says that there is more.
  seen as materialized (
    select q.place, q.gate, q.rank, q.ticket, q.id, q.cost, o.cap is not null as takes, o.rate,
      o.burst, o.tokens
    from open as o
    cross join lateral (
      select t.ctid as place, t.gate, t.rank, t.ticket, t.id, t.cost
      from {schema}.gate_queue as t
      where t.gate = o.name
      order by t.rank, t.ticket
      limit greatest(0, least(o.free, floor(o.tokens + 1e-6 * o.rate) + 1))
      for update skip locked
    ) as q
    limit room
  ),
  measured as (
    select s.*, coalesce(s.tokens - sum(s.cost) over arrival + s.cost, 0) as left_tokens
    from seen as s
    window arrival as (partition by s.gate order by s.rank, s.ticket)
  ),
  paid as (
    select m.*, bool_and(
      m.rate is null or least(m.cost, m.burst) - m.left_tokens <= 1e-6 * m.rate
    ) over (partition by m.gate order by m.rank, m.ticket) as passes
    from measured as m
  ),
  passing as materialized (
    select p.gate, p.rank, p.ticket, p.id, p.cost, p.takes, j.lane, j.ties, j.held, s.claim_no,
      s.place as scheduled, nextval('{schema}.ticket') as new_ticket
    from (select * from paid where passes order by rank, ticket) as p
    cross join lateral (
      select b.lane, b.ties, b.held from {schema}.job as b where b.id = p.id
      for update skip locked
    ) as j
    cross join lateral (
      select w.claim_no, w.ctid as place from {schema}.sched as w
      where w.lane = j.lane and w.run_at = 'infinity' and w.id = p.id
      for update skip locked
    ) as s
  ),
  passed as materialized (
    select p.*, n.now_held, n.next_gate, n.next_cost, n.cap, n.rate, n.burst
    from passing as p
    cross join lateral {schema}.next_gate_1(p.ties, p.held, p.gate, p.takes) as n
  ),
  left_queue as (
    delete from {schema}.gate_queue as t using passed as p
    where t.gate = any(array[p.gate]) and t.rank = p.rank and t.ticket = p.ticket
      and p.next_gate is null
  ),
  went_on as (
    update {schema}.gate_queue as t
    set gate = p.next_gate, ticket = p.new_ticket, cost = p.next_cost
    from passed as p
    where t.gate = any(array[p.gate]) and t.rank = p.rank and t.ticket = p.ticket
      and p.next_gate is not null
  ),
  arrived as (
    insert into {schema}.gate_deferred (gate, cap, rate, burst)
    select distinct on (p.next_gate) p.next_gate, p.cap, p.rate, p.burst
    from passed as p where p.next_gate is not null
    order by p.next_gate, p.burst is null, p.new_ticket
  ),
  -- The job is gone: it was removed by hand.
  lost as (
    delete from {schema}.gate_queue as t
    where t.ctid = any(array(
      select s.place from seen as s
      where (select 1 from {schema}.job as b where b.id = s.id) is null
    ))
  ),
  left_scheduled as (
    delete from {schema}.sched as w
    where w.ctid = any(array(select p.scheduled from passed as p where p.next_gate is null))
  ),
  changed_jobs as (
    update {schema}.job as b
    set held = p.now_held, run_at = case when p.next_gate is null then moment else b.run_at end
    from passed as p where b.id = any(array[p.id])
  ),
  -- A ticket comes after the jobs and all rows of the queue: a producer's clock may be ahead.
  lane_end as materialized (
    select q.lane, q.rank, greatest(
      lpad(to_hex((moment * 1000)::int8), 12, '0'), left(replace(q.newest, '-', ''), 12),
      left(replace(n.id::text, '-', ''), 12)
    ) as prefix
    from (
      select p.lane, p.rank, max(p.id::text) as newest
      from passed as p where p.next_gate is null group by p.lane, p.rank
    ) as q
    left join lateral (
      select r.id from {schema}.ready as r
      where r.lane = q.lane and r.rank = q.rank and r.id
        >= (lpad(to_hex((moment * 1000)::int8), 12, '0') || repeat('0', 20))::uuid
      order by r.id desc limit 1
    ) as n on true
  ),
  new_ready as (
    insert into {schema}.ready (lane, rank, id, claim_no, job)
    select p.lane, p.rank,
      (e.prefix || '7fff8' || lpad(to_hex(p.new_ticket), 15, '0'))::uuid, p.claim_no, p.id
    from passed as p join lane_end as e on e.lane = p.lane and e.rank = p.rank
    where p.next_gate is null
    returning lane, rank, id
  ),
  counted as (
    update {schema}.gate as g
    set used = g.used + case when g.cap is null then 0 else n.jobs end, at = moment,
      tokens = case when g.rate is null then g.tokens else least(
        g.burst, g.tokens + greatest(moment - g.at, 0) * g.rate
      ) - n.cost end
    from (
      select p.gate, count(*) as jobs, sum(p.cost) as cost from passed as p group by p.gate
    ) as n
    where g.name = any(array[n.gate])
  )
  select coalesce((
      select jsonb_agg(jsonb_build_array(f.lane, f.rank, f.lowest))
      from (
        select r.lane, r.rank, min(r.id::text) as lowest from new_ready as r
        group by r.lane, r.rank
      ) as f
    ), '[]'),
    (select count(*)::int4 from passed),
    array(select distinct p.next_gate from passed as p where p.next_gate is not null)
$$;

-- Does what a transaction has at gates, as its last step, and looks at `names`: those whose
-- `places` are 0, too. Returns null if there is nothing to tell, or as JSON: the jobs that are
-- ready now as `end_waits_1` tells, the number of jobs that passed, what is left, the number
-- of deferred rows that were removed, and when the next gate is due.
create function {schema}.pass_gates_1(
  entering uuid[], names text[], places int4[], room int4, moment float8
) returns text language plpgsql as $$
declare
  now_ float8 := coalesce(moment, extract(epoch from clock_timestamp())::float8);
  further text[];
  above text := '';
  locked text[];
  passed record;
  found jsonb := '[]';
  jobs int4 := 0;
  rest int4 := 0;
  removed int8 := 0;
  next_due float8;
  due float8;
begin
  perform {schema}.defer_gates_1(entering, names, places);
  further := array(
    select d.gate from {schema}.gate_deferred as d where d.xid = pg_current_xact_id()
    union
    select u.name from unnest(names) as u (name)
  );
  while cardinality(further) > 0 loop
    locked := {schema}.lock_gates_1(further, above, now_);
    if cardinality(locked) < cardinality(further) then
      rest := greatest(rest, 1);
    end if;
    removed := removed + {schema}.apply_deferred_1(locked, now_);
    passed := {schema}.admit_jobs_1(locked, room - jobs, now_);
    with waiting as materialized (
      select g.name, case
          when w.cost is null then null
          when g.until > now_ then g.until
          when g.used >= g.cap then null
          when g.rate is null then now_
          else now_ + greatest(0, least(w.cost, g.burst) - least(
            g.burst, g.tokens + greatest(now_ - g.at, 0) * g.rate
          )) / g.rate
        end as due
      from {schema}.gate as g
      left join lateral (
        select t.cost from {schema}.gate_queue as t where t.gate = g.name
        order by t.rank, t.ticket limit 1
      ) as w on true
      where g.name = any(locked)
    ),
    marked as (
      update {schema}.gate as g set due = w.due, at = least(g.at, now_)
      from waiting as w
      where g.name = any(array[w.name]) and (g.due is distinct from w.due or g.at > now_)
    )
    select min(w.due) into due from waiting as w;
    jobs := jobs + passed.jobs;
    found := found || passed.places;
    if due <= now_ + 1e-6 or removed >= 5000 then
      rest := greatest(rest, case when jobs >= room or removed >= 5000 then 2 else 1 end);
    end if;
    next_due := least(next_due, due);
    above := (
      select max(u.name collate "C") from unnest(further || above) as u (name)
    );
    further := passed.next_gates;
  end loop;
  if jobs = 0 and rest = 0 and removed = 0 and next_due is null then
    return null;
  end if;
  return json_build_array(found, jobs, rest, removed, next_due - now_)::text;
end
$$;

-- The places of a job by name: with its bit, and how long it is held.
create function {schema}.places_1(
  ties text, held int2, out gate text, out place int4, out held_until int4
) returns setof record language sql immutable as $$
  select x.spec ->> 0, p.place, (x.spec ->> 4)::int4
  from jsonb_array_elements(ties::jsonb -> 3) with ordinality as x (spec, n)
  cross join lateral (select 1 << (x.n::int4 - 1) as place) as p
  where held & p.place <> 0
$$;

-- The places that a job keeps until it ends.
create function {schema}.final_places_1(ties text, held int2) returns int2
language sql immutable as $$
  select bit_or(p.place)::int2 from {schema}.places_1(ties, held) as p where p.held_until = 2
$$;

-- Claimed jobs give the places back that are held until the start.
create function {schema}.start_jobs_1(ids uuid[]) returns void language sql as $$
  with given as materialized (
    select b.id, p.gate, p.place
    from {schema}.job as b cross join lateral {schema}.places_1(b.ties, b.held) as p
    where b.id = any(ids) and p.held_until = 1
  ),
  changed_jobs as (
    update {schema}.job as b set held = nullif(b.held & ~g.places, 0)
    from (select g.id, bit_or(g.place) as places from given as g group by g.id) as g
    where b.id = any(array[g.id])
  )
  insert into {schema}.gate_deferred (gate, places)
  select g.gate, count(*) from given as g group by g.gate
$$;

-- The end of the one statement of an exchange: what done jobs append to logs, and the places
-- that they and claimed jobs give back.
create function {schema}.end_exchange_1(
  ids uuid[], ties text[], results bytea[], held int2[], started uuid[], moment float8
) returns text language plpgsql as $$
declare
  appended jsonb;
  passed jsonb;
begin
  if ids is not null then
    appended := {schema}.append_done_1(ids, ties, results, moment)::jsonb;
  end if;
  if started is not null then
    perform {schema}.start_jobs_1(started);
  end if;
  if cardinality(array_remove(held, null)) > 0 then
    insert into {schema}.gate_deferred (gate, places)
    select p.gate, count(*)
    from unnest(ties, held) as e (ties, held)
    cross join lateral {schema}.places_1(e.ties, e.held) as p
    group by p.gate;
  end if;
  passed := {schema}.pass_gates_1('{}', '{}', '{}', 1000, moment)::jsonb;
  if passed is null or appended is null then
    return coalesce(passed, appended)::text;
  end if;
  return jsonb_build_array(
    (appended -> 0) || (passed -> 0), (appended ->> 1)::int4 + (passed ->> 1)::int4,
    greatest((appended ->> 2)::int4, (passed ->> 2)::int4), passed -> 3, passed -> 4
  )::text;
end
$$;

-- Goes on with what other transactions have left, and with gates that are due. Returns the
-- result of `pass_gates_1`; its last value is about all gates.
create function {schema}.settle_gates_1(room int4, moment float8) returns text
language plpgsql as $$
declare
  now_ float8 := coalesce(moment, extract(epoch from clock_timestamp())::float8);
  names text[];
  oldest xid8;
  result jsonb;
  rest int4 := 0;
  next_due float8;
begin
  with
  deferring as materialized (
    select d.gate as name, d.xid from {schema}.gate_deferred as d
    where d.xid >= coalesce(
      (select {schema}.read_from_1(f.gates) from {schema}.deferred_from as f), '0'::xid8
    )
    order by d.xid limit 5000
  ),
  open as (
    select g.name from {schema}.gate as g where g.due <= now_ + 1e-6 order by g.due limit 1000
  )
  select array(
    (select distinct d.name from deferring as d limit 1000)
    union
    select o.name from open as o
  ), least(
    pg_snapshot_xmin(pg_current_snapshot()),
    (select d.xid from deferring as d order by d.xid limit 1)
  )
  into names, oldest;
  update {schema}.deferred_from as f set gates = oldest
  where f.ctid = any(array(
    select g.ctid from {schema}.deferred_from as g
    where abs(oldest::text::int8 - g.gates::text::int8) > 100
    for update skip locked
  ));
  if cardinality(names) > 0 then
    result := {schema}.pass_gates_1(
      '{}', names, array(select 0 from unnest(names)), room, now_
    )::jsonb;
    if cardinality(names) >= 1000 then
      rest := 2;
    end if;
  end if;
  next_due := (
    select g.due from {schema}.gate as g where g.due is not null order by g.due limit 1
  );
  if result is null and next_due is null then
    return null;
  end if;
  return jsonb_build_array(
    coalesce(result -> 0, '[]'), coalesce((result ->> 1)::int4, 0),
    greatest((result ->> 2)::int4, rest), coalesce((result ->> 3)::int4, 0), next_due - now_
  )::text;
end
$$;

-- As in the migration before, and a job with gates goes to its first one.
create or replace function {schema}.end_waits_1(
  locked text[], room int4, moment float8,
  out places text, out jobs int4, out rest int4
) language plpgsql as $$
declare
  entering uuid[];
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
      greatest(f.run_at, moment + f.delay) as due, greatest(f.run_at, moment + f.delay) <= moment
        and j.ties::jsonb -> 3 is not null as enters
    from open_waits as f
    cross join lateral (
      select b.id, b.lane, b.rank, b.ties from {schema}.job as b where b.id = f.id
      for update skip locked
    ) as j
    cross join lateral (
      select s.claim_no, s.ctid as place from {schema}.sched as s
      where s.lane = j.lane and s.run_at = 'infinity' and s.id = j.id
      for update skip locked
    ) as p
  ),
  left_scheduled as (
    delete from {schema}.sched as s where s.ctid = any(array(
      select e.place from ended as e where not e.enters
    ))
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
    update {schema}.job as b set run_at = e.due from ended as e where b.id = any(array[e.id]) and not e.enters
  ),
  new_scheduled as (
    insert into {schema}.sched (lane, run_at, id, claim_no)
    select e.lane, e.due, e.id, e.claim_no from ended as e where e.due > moment
  ),
  new_ready as (
    insert into {schema}.ready (lane, rank, id, claim_no)
    select e.lane, e.rank, e.id, e.claim_no from ended as e where e.due <= moment and not e.enters
  )
  select json_agg(json_build_array(p.lane, p.rank, p.lowest))::text,
    (select count(*) from ended),
    (select array_agg(e.id order by e.above, e.id) from ended as e where e.enters)
  into places, jobs, entering
  from (
    select e.lane, e.rank, min(e.id::text) as lowest
    from ended as e where not e.enters group by e.lane, e.rank
  ) as p;
  if entering is not null then
    perform {schema}.enter_gates_1(entering);
  end if;
  update {schema}.log as l set has_more = true
  where l.name = any(locked) and (
    select 1 from {schema}.waits as w where w.log = l.name and w.above < l.length limit 1
  ) is not null;
  if found then
    rest := case when jobs >= room then 2 else 1 end;
  end if;
end
$$;
