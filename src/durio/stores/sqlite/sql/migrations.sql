-- Which numbered migrations this file has.

-- name: create_migration_table()
create table if not exists migration (
  number integer primary key,
  name text not null,
  checksum text not null,
  applied_at real not null
) strict

-- name: read_migration_columns()
-- only here: PostgreSQL has a schema of its own, where no other program has a table.
-- Another program may have a table of this name: its columns tell.
select s.type, i.name, lower(i.type), i."notnull", i.pk
from sqlite_schema s left join pragma_table_info(s.name) i
where s.name = 'migration' collate nocase and s.type <> 'trigger'
order by i.cid

-- name: read_migrations()
select number, name, checksum from migration order by number

-- name: record_migration(number, name, checksum, now)
insert into migration (number, name, checksum, applied_at)
values (:number, :name, :checksum, :now)
