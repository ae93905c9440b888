-- Of whoever logs in as we do, or as somebody whose sessions we may end. The name is that of a
-- transaction, and gone with it: no other column is needed, and some are not shown to all.
select pg_terminate_backend(a.pid)
from pg_catalog.pg_stat_activity as a
where a.application_name = any($1::text[]) and a.datname = current_database()
  and (pg_has_role(a.usesysid, 'usage') or pg_has_role('pg_signal_backend', 'usage'))
