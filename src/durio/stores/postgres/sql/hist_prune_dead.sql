-- Past their age, and not among the newest $3. A look at the oldest is enough: whoever died
-- earlier leaves earlier. Only what goes is locked, and it is looked for by id: a join by
-- `any(array[...])` can only be a probe, and `+ 0` keeps another index away.
with
oldest as materialized (
  select k.id, k.finished_at, k.gone_at from {schema}.kept as k
  where k.state = 5
  order by k.finished_at
  limit 2 * $2::int4
),
newest as materialized (
  select k.finished_at from {schema}.kept as k
  where k.state = 5 and $3::int4 > 0
  order by k.finished_at desc
  limit 1 offset greatest($3::int4 - 1, 0)
)
delete from {schema}.kept
where id = any(array(
  select k.id from oldest as o join {schema}.kept as k on k.id = any(array[o.id])
  where o.gone_at <= $1::float8 and k.state + 0 = 5
    and ($3::int4 = 0 or o.finished_at < (select n.finished_at from newest as n))
  order by o.finished_at
  limit $2::int4
  for update of k skip locked
))
returning 1
