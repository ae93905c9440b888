-- Who keeps old row versions alive, the oldest first: a session, a prepared transaction, or
-- a replica that has not read so far.
select o.kind, o.who, o.what, o.seconds, o.age
from (
  select 'process' as kind, a.pid::text as who,
    concat_ws(', ', nullif(a.application_name, ''), a.state) as what,
    extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds,
    age(a.backend_xmin) as age
  from pg_stat_activity as a
  where a.backend_xmin is not null and a.pid <> pg_backend_pid()
  union all
  select 'prepared transaction', p.gid, 'prepared',
    extract(epoch from clock_timestamp() - p.prepared)::float8, age(p.transaction)
  from pg_prepared_xacts as p
  union all
  select 'replication slot', s.slot_name::text, 'replication', null::float8, age(s.xmin)
  from pg_replication_slots as s where s.xmin is not null
) as o
order by o.age desc
limit 1
