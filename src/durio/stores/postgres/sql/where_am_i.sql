-- Which database this is: its name and number, and when our schema was made in it.
select current_database()::text, d.oid::int8, (
    select m.applied_at from {schema}.migration m order by m.number limit 1
  )::float8
from pg_catalog.pg_database d where d.datname = current_database()
