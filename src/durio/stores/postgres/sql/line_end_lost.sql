-- The server's processes behind connections of ours that are lost: ended, and gone when this
-- answers, if they can be. They are older than we are: a newer one got its number by chance.
select pg_terminate_backend(a.pid, $2::int8)
from pg_catalog.pg_stat_activity as a
where a.pid = any($1::int4[]) and a.usename = current_user and a.datname = current_database()
  and a.application_name = current_setting('application_name')
  and a.backend_start < (
    select m.backend_start from pg_catalog.pg_stat_activity as m where m.pid = pg_backend_pid()
  )
