-- The partitions of history, beside the time and whether we may change them.
select coalesce($1::float8, extract(epoch from clock_timestamp())::float8),
  pg_has_role(h.relowner, 'usage') and has_schema_privilege(h.relnamespace, 'create'),
  c.relname::text, greatest(c.reltuples, 0)::int8
from pg_class as h
join pg_inherits as i on i.inhparent = h.oid
join pg_class as c on c.oid = i.inhrelid
where h.oid = '{schema}.hist'::regclass
