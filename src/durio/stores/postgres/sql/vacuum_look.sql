-- Dead row versions by lane, and whether we may clean it.
select c.relname::text, pg_stat_get_dead_tuples(c.oid),
  pg_has_role(c.relowner, 'usage') or case
    when current_setting('server_version_num')::int4 >= 170000
    then has_table_privilege(c.oid, 'maintain')
    else false
  end
from pg_class as c
where c.oid = any(array[
  '{schema}.ready'::regclass, '{schema}.sched'::regclass, '{schema}.run'::regclass
]::oid[])
