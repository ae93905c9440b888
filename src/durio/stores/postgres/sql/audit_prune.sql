-- All but the newest $1.
delete from {schema}.audit
where seq = any(array(
  select seq from {schema}.audit
  where seq <= (select seq from {schema}.audit order by seq desc offset $1::int8 limit 1)
  order by seq limit $2::int8
  for update skip locked
))
