-- Migrations of the schema.

-- name: has_schema(name)
-- only here: a SQLite store is a file.
select exists (select 1 from pg_catalog.pg_namespace where nspname = :name::text)

-- name: has_migrations
-- only here: SQLite looks for the table by `read_migration_columns`.
select to_regclass('{schema}.migration') is not null

-- name: create_schema
-- only here: a SQLite store is a file.
create schema if not exists {schema}

-- name: create_migration_table
create table if not exists {schema}.migration (
  number int4 primary key,
  name text not null,
  checksum text not null,
  applied_at float8 not null
)

-- name: read_migrations
select number, name, checksum from {schema}.migration order by number

-- name: record_migration(number, name, checksum)
insert into {schema}.migration (number, name, checksum, applied_at)
values (:number::int4, :name::text, :checksum::text, extract(epoch
  from clock_timestamp())::float8)
