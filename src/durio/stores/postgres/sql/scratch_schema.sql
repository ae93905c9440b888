-- A schema for tests.

-- name: try_lock_schema(lock, number)
-- only here: a SQLite test has a file of its own.
select pg_try_advisory_lock(:lock::int4, :number::int4)

-- name: unlock_schemas
-- only here: see above.
select pg_advisory_unlock_all()

-- name: empty_schema(schema)
-- only here: see above. Gives the statements that delete every row and start the
-- sequences again. A test leaves few rows: deleting them is quicker than truncating.
select string_agg(
  case when relispartition then format('drop table %s', oid::regclass)
  else format('delete from %s', oid::regclass) end, ';'
) || ';' || (
  select string_agg(format('select setval(%L, 1, false)', oid::regclass), ';')
  from pg_catalog.pg_class where relnamespace = :schema::text::regnamespace and relkind = 'S'
)
from pg_catalog.pg_class
where relnamespace = :schema::text::regnamespace and relkind in ('r', 'p')
  and relname not in ('migration', 'hist_default')
