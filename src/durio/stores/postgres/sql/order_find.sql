-- `offset 0`: first those that are open, then in order. Not by a walk through all in order.
select id, verb
from (
  select id, verb from {schema}.command
  where worker = $1::int4 and answered_at is null
  offset 0
) c
order by id limit 100
