-- By jumps from lane to lane: each lane's first due job is at the head of its index.
with recursive scheduled (name) as (
  select min(queue) from job where state = 0
  union all
  select (select min(queue) from job where state = 0 and queue > scheduled.name)
  from scheduled where scheduled.name is not null
)
select min((select min(run_at) from job where state = 0 and queue = scheduled.name))
from scheduled where scheduled.name is not null
