insert into {schema}.tally as t (lane, task, error_type, dead)
select u.lane, u.task, u.error_type, u.dead
from unnest($1::text[], $2::text[], $3::text[], $4::int8[])
  as u (lane, task, error_type, dead)
on conflict (lane, task, error_type) do update set dead = t.dead + excluded.dead
