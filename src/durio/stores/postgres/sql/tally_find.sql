select t.lane, t.task, t.error_type
from unnest($1::text[], $2::text[], $3::text[]) as u (lane, task, error_type)
join {schema}.tally as t
  on t.lane = u.lane and t.task = u.task and t.error_type = u.error_type
