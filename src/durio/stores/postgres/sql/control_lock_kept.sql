-- What two hands reach for only one gets; nobody waits for what somebody holds.
select id, state, ukey, umode, case when ukey is not null then payload end, id
from {schema}.kept
where id = any($1::uuid[]) and state in (5, 6)
order by id
for update skip locked
