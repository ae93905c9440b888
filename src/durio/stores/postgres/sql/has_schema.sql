select exists (select 1 from pg_catalog.pg_namespace where nspname = $1::text)
