-- Dead jobs have a rule of their own.
delete from {schema}.kept
where id = any(array(
  select k.id from {schema}.kept as k
  where k.state <> 5 and k.gone_at <= $1::float8
  order by k.gone_at
  limit $2::int4
  for update skip locked
))
returning 1
