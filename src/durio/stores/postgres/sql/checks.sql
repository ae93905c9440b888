-- Queries about the server, this role and other connections: `durio doctor`, vacuum, and
-- checks of a caller's connection.

-- name: read_identity(text, bytes, float, small, int, big, flag)
-- only here: a SQLite caller gives a connection to the same file.
-- Which database this is: its name, its number and when the schema was created in it; whether
-- it can be written to; whether this is a task's own transaction; and whether it sees what
-- others commit meanwhile. Then how the connection converts the types that the store uses:
-- each value is returned if it arrived unchanged.
select current_database()::text,
  d.oid::text || ' ' || encode(float8send((
    select m.applied_at from {schema}.migration m order by m.number limit 1
  )::float8), 'hex'),
  case when pg_is_in_recovery() then 'replica'
    when current_setting('transaction_read_only') = 'on' then 'read only'
    else 'writes' end,
  coalesce(current_setting('durio.block', true), ''),
  case when current_setting('transaction_isolation') in ('repeatable read', 'serializable')
    then 'frozen' else 'sees' end,
  case when :text::text = 'Aa' then 'Aa'::text end,
  case when :bytes::bytea = decode('00ff5c', 'hex') then decode('00ff5c', 'hex') end,
  case when :float::float8 = 1234567890.123456 then 1234567890.123456::float8 end,
  case when :small::int2 = 2 then 2::int2 end,
  case when :int::int4 = 70000 then 70000::int4 end,
  case when :big::int8 = 9007199254740993 then 9007199254740993::int8 end,
  case when :flag::bool then true end,
  '00112233-4455-6677-8899-aabbccddeeff'::uuid as id
from pg_catalog.pg_database d where d.datname = current_database()

-- name: terminate_lost_connections(pids, timeout_ms)
-- only here: SQLite has no server processes.
-- Terminates the server processes behind lost connections of this process, and waits until
-- they are gone. They are older than this connection: a younger one has got the same pid by
-- chance.
select pg_terminate_backend(a.pid, :timeout_ms::int8)
from pg_catalog.pg_stat_activity as a
where a.pid = any(:pids::int4[]) and a.usename = current_user and a.datname = current_database()
  and a.application_name = current_setting('application_name')
  and a.backend_start < (
    select m.backend_start from pg_catalog.pg_stat_activity as m where m.pid = pg_backend_pid()
  )

-- name: end_task_transactions(names)
-- only here: SQLite has no server processes.
-- Terminates transactions of this login role, or of roles whose sessions it may end. The
-- name belongs to one transaction and ends with it: no other column is needed, and some
-- columns are not visible to all roles.
select pg_terminate_backend(a.pid)
from pg_catalog.pg_stat_activity as a
where a.application_name = any(:names::text[]) and a.datname = current_database()
  and (pg_has_role(a.usesysid, 'usage') or pg_has_role('pg_signal_backend', 'usage'))

-- name: find_task_transactions(schema)
-- only here: SQLite has no server processes.
-- Transactions of tasks that this login role could not terminate when it rescues their jobs.
select a.usename::text, count(*)::int4
from pg_catalog.pg_stat_activity as a
where a.application_name ~ ('^durio tx \d+ ' || :schema::text || '$')
  and a.datname = current_database()
  and not pg_has_role(session_user, a.usesysid, 'usage')
  and not pg_has_role(session_user, 'pg_signal_backend', 'usage')
group by 1 order by 1

-- name: read_server
-- only here: SQLite has no server.
select current_setting('server_version'), current_user::text, pg_is_in_recovery(),
  current_setting('default_transaction_read_only')::bool

-- name: read_settings(names)
-- only here: SQLite has no server.
select s.name, current_setting(s.name) from unnest(:names::text[]) as s (name)

-- name: read_missing_rights(schema)
-- only here: SQLite has no roles.
-- The rights that this role lacks. A row without a name says that the schema exists.
select null::text, null::text from pg_namespace where nspname = :schema::text
union all
select nspname::text, 'usage' from pg_namespace
where nspname = :schema::text and not has_schema_privilege(oid, 'usage')
union all
select c.relname::text, r.name
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
cross join unnest(array['select', 'insert', 'update', 'delete']) as r (name)
where n.nspname = :schema::text and c.relkind in ('r', 'p') and not c.relispartition
  and not (c.relname = 'migration' and r.name <> 'select')
  and not has_table_privilege(c.oid, r.name)
union all
select p.proname::text, 'execute'
from pg_proc as p
join pg_namespace as n on n.oid = p.pronamespace
where n.nspname = :schema::text and not has_function_privilege(p.oid, 'execute')
  and p.prorettype <> 'trigger'::regtype  -- triggers run without this right

-- name: count_connections
-- only here: SQLite has no server.
-- Reserved connections are not available to this role.
select count(*)::int4,
  current_setting('max_connections')::int4
    - current_setting('superuser_reserved_connections')::int4
    - coalesce(nullif(current_setting('reserved_connections', true), ''), '0')::int4,
  (count(*) filter (where usename = current_user))::int4
from pg_stat_activity
where backend_type = 'client backend'

-- name: read_clock
-- only here: SQLite uses the clock of this host.
select extract(epoch from clock_timestamp())::float8

-- name: is_default_partition_used
-- only here: SQLite has no partitions.
select 1 from {schema}.hist_default limit 1

-- name: read_moves
-- only here: SQLite is only the source of a move.
select name, body from {schema}.doc where kind = 'move' order by name

-- name: read_dead_rows
-- only here: SQLite needs no vacuum of row versions.
-- Dead row versions by table, and whether this role may vacuum it.
select c.relname::text, pg_stat_get_dead_tuples(c.oid),
  pg_has_role(c.relowner, 'usage') or case
    when current_setting('server_version_num')::int4 >= 170000
    then has_table_privilege(c.oid, 'maintain')
    else false
  end
from pg_class as c
where c.oid = any(array[
  '{schema}.ready'::regclass, '{schema}.sched'::regclass, '{schema}.run'::regclass,
  '{schema}.waits'::regclass, '{schema}.deferred'::regclass
]::oid[])

-- name: find_oldest_snapshot
-- only here: SQLite needs no vacuum of row versions.
-- What keeps old row versions alive, the oldest first: a session, a prepared transaction, or
-- a replica that lags behind.
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
