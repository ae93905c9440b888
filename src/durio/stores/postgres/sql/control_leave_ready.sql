-- A join by `any(array[...])` can only be a probe.
delete from {schema}.ready as t
using unnest($1::uuid[], $2::text[], $3::int2[]) as u (id, lane, rank)
where t.lane = any(array[u.lane]) and t.rank = u.rank and t.id = u.id
