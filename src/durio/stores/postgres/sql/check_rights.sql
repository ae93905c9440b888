-- What this role lacks; a row without a name says that the schema is there at all.
select null::text, null::text from pg_namespace where nspname = $1::text
union all
select nspname::text, 'usage' from pg_namespace
where nspname = $1::text and not has_schema_privilege(oid, 'usage')
union all
select c.relname::text, r.name
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
cross join unnest(array['select', 'insert', 'update', 'delete']) as r (name)
where n.nspname = $1::text and c.relkind in ('r', 'p') and not c.relispartition
  and not (c.relname = 'migration' and r.name <> 'select')
  and not has_table_privilege(c.oid, r.name)
union all
select p.proname::text, 'execute'
from pg_proc as p
join pg_namespace as n on n.oid = p.pronamespace
where n.nspname = $1::text and not has_function_privilege(p.oid, 'execute')
