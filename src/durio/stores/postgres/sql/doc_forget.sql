-- Signatures that no worker has said for long: their body is the number of a day.
delete from {schema}.doc
where kind = $1::text and name = any(array(
  select name from {schema}.doc
  where kind = $1::text
    and case when body ~ '^[0-9]{1,9}$' then body::int4 < $2::int4 else true end
  for update skip locked
))
