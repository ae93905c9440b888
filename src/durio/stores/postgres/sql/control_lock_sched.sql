-- Whoever has promoted one meanwhile has its row: then it does not come back. Nor does one that
-- somebody holds right now: it may be a caller's transaction, which lasts.
-- A join by `any(array[...])` can only be a probe.
select t.id, t.claim_no
from unnest($1::uuid[], $2::text[], $3::float8[]) as u (id, lane, run_at)
join {schema}.sched as t on t.lane = any(array[u.lane]) and t.run_at = u.run_at and t.id = u.id
order by t.id
for update of t skip locked
