-- As the queues were left, but shut. What the code here says about a bound stays.
insert into {schema}.queue as q (
  name, paused, closed, maxsize, is_default, hand_maxsize
)
select u.name, true, true, u.maxsize, u.is_default, u.hand_maxsize
from unnest($1::text[], $2::int8[], $3::bool[], $4::int8[])
  as u (name, maxsize, is_default, hand_maxsize)
order by u.name
on conflict (name) do update
set paused = true, closed = true, hand_maxsize = excluded.hand_maxsize,
  maxsize = coalesce(q.maxsize, excluded.maxsize),
  is_default = case when q.maxsize is null then excluded.is_default else q.is_default end
