-- Those that are kept for others are not for us.
select count(*)::int4,
  current_setting('max_connections')::int4
    - current_setting('superuser_reserved_connections')::int4
    - coalesce(nullif(current_setting('reserved_connections', true), ''), '0')::int4,
  (count(*) filter (where usename = current_user))::int4
from pg_stat_activity
where backend_type = 'client backend'
