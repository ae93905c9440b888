update {schema}.tally as t set dead = greatest(t.dead - u.dead, 0)
from unnest($1::text[], $2::text[], $3::text[], $4::int8[])
  as u (lane, task, error_type, dead)
where t.lane = u.lane and t.task = u.task and t.error_type = u.error_type
