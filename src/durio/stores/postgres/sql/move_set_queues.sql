update {schema}.queue as q set paused = u.paused, closed = u.closed
from unnest($1::text[], $2::bool[], $3::bool[]) as u (name, paused, closed)
where q.name = u.name
