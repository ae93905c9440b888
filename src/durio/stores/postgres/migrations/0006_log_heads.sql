-- Appends no longer write the head of a log: they lock it, and count by the newest entry.
--
-- Old versions of a row stay while an old snapshot is open, and each lookup of the row reads
-- them. A log with thousands of appends had as many versions of its head, and each append was
-- slower than the one before. Now a head is written when a log is trimmed, marked or given
-- another expiry, and once in a while when deferred entries were appended.
--
-- The functions keep their names, for callers of the release before.

-- `log.length` is a lower bound: entries from there on count, too. All others are deleted.
create view {schema}.grown_log as
select l.name, l.expires_at, greatest(l.length, (
  select e.off + 1 from {schema}.entry as e
  where e.log = l.name and e.off >= l.length order by e.off desc limit 1
)) as length
from {schema}.log as l;

create or replace function {schema}.append_plain_1(
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
  -- The length is read once for each log.
  placed as materialized (
    select i.*, max(case when i.n = 1 then (
      select l.length from {schema}.grown_log as l where l.name = any(array[i.log])
    ) end) over (partition by i.log) + i.n - 1 as off
    from incoming as i
  ),
  written as (
    insert into {schema}.entry (log, off, at, tag, state, job, body)
    select p.log, p.off, moment, p.tag, p.state, p.job, p.body from placed as p
  )
  select bool_or((
    select 1 from {schema}.waits as w where w.log = g.log and w.above <= g.newest limit 1
  ) is not null)
  into is_over
  from (select p.log, max(p.off) as newest from placed as p group by p.log) as g;
  return coalesce(is_over, false);
end
$$;

create or replace function {schema}.append_all_1(
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
  -- The length is read once for each log.
  placed as materialized (
    select n.*, max(case when n.n = 1 then (
      select l.length from {schema}.grown_log as l where l.name = any(array[n.log])
    ) end) over (partition by n.log) + n.n - 1 as off
    from numbered as n
    where n.is_new
  ),
  written as (
    insert into {schema}.entry (log, off, at, tag, state, job, uid, body)
    select p.log, p.off, moment, p.tag, p.state, p.job, p.uid, p.body from placed as p
  ),
  expiring as (
    update {schema}.log as l set expires_at = moment + s.ttls[cardinality(s.ttls)]
    from (
      select n.log, array_agg(n.ttl order by n.part, n.place) as ttls
      from numbered as n where n.ttl is not null group by n.log
    ) as s
    where l.name = any(array[s.log])
  )
  select count(*), pg_snapshot_xmin(pg_current_snapshot()) into removed, oldest from applied;
  if removed between 1 and 4999 then
    -- Not at each call: old versions of these rows are read, too.
    update {schema}.log as l set deferred_from = oldest
    where l.name = any(locked)
      and abs(oldest::text::int8 - l.deferred_from::text::int8) > 500;
  end if;
  return removed;
end
$$;

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
    select 1 from {schema}.grown_log as l
    where l.name = any(locked) and (
      select 1 from {schema}.waits as w where w.log = l.name and w.above < l.length limit 1
    ) is not null
  ) then
    return;
  end if;
  with
  open_waits as materialized (
    select q.log, q.above, q.id, q.delay, q.run_at
    from {schema}.grown_log as l
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
  where l.name = any(array(
    select g.name from {schema}.grown_log as g
    where g.name = any(locked) and (
      select 1 from {schema}.waits as w where w.log = g.name and w.above < g.length limit 1
    ) is not null
  ));
  if found then
    rest := case when jobs >= room then 2 else 1 end;
  end if;
end
$$;
