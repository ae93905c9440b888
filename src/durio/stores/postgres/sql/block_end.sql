select pg_terminate_backend(a.pid)
from pg_catalog.pg_stat_activity as a
where a.application_name = any($1::text[])
  and a.datname = current_database() and a.usename = current_user
  and a.xact_start is not null
