-- Who has looked at the queues and is not over: what it saw there may be old by now.
select l.virtualtransaction
from pg_catalog.pg_locks l
where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid()
  and l.relation = (select q.tableoid from {schema}.queue q limit 1)
  and l.database = (
    select d.oid from pg_catalog.pg_database d where d.datname = current_database()
  )
  and l.mode in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
