-- Only for a worker that is there to hear it: its row stays as long as we look, so that
-- whoever deletes it finds this order and closes it.
with asked as materialized (
  select id, namespace from {schema}.worker
  where id = $1::int8 and not rescued
  for key share
),
given as (
  insert into {schema}.command (worker, verb, asked_at)
  select id, $2::text, $3::float8 from asked
  returning id
)
select given.id, asked.namespace from given, asked
