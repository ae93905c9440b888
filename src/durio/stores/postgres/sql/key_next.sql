-- Of the next $2 keys those without a window, locked but for those that somebody asks for
-- right now; and the last of all, empty where they end. Windows end by themselves, and may
-- be many: they are passed over, but count, so no step reads more than $2.
with n as materialized (
  select u.key, u.until from {schema}.uniq as u
  where u.key > $1::bytea
  order by u.key
  limit $2::int4
),
l as materialized (
  select u.key from {schema}.uniq as u
  where u.key = any(array(select n.key from n where n.until is null)) and u.until is null
  for update skip locked
)
select array(select l.key from l), coalesce(
  (select n.key from n order by n.key offset $2::int4 - 1), ''::bytea
)
