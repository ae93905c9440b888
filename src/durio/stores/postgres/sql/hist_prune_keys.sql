-- A window lasts at least until its job is final. No `not exists`: it may be a join, by a walk.
delete from {schema}.uniq
where key = any(array(
  select u.key from {schema}.uniq as u
  where u.until <= $1::float8
    and (select 1 from {schema}.job as b where b.id = u.id) is null
  order by u.until
  limit $2::int4
  for update skip locked
))
returning 1
