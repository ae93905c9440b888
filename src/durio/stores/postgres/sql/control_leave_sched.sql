-- A join by `any(array[...])` can only be a probe.
delete from {schema}.sched as t
using unnest($1::uuid[], $2::text[], $3::float8[]) as u (id, lane, run_at)
where t.lane = any(array[u.lane]) and t.run_at = u.run_at and t.id = u.id
