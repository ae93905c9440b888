-- Transactions of tasks that whoever takes a worker's jobs back could not end, as we log in.
select a.usename::text, count(*)::int4
from pg_catalog.pg_stat_activity as a
where a.application_name ~ ('^durio tx \d+ ' || $1::text || '$')
  and a.datname = current_database()
  and not pg_has_role(session_user, a.usesysid, 'usage')
  and not pg_has_role(session_user, 'pg_signal_backend', 'usage')
group by 1 order by 1
