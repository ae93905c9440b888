-- Whoever has claimed one meanwhile has its row: then it does not come back. Nor does one that
-- somebody holds right now: it may be a caller's transaction, which lasts.
-- A join by `any(array[...])` can only be a probe.
select t.id, t.claim_no
from unnest($1::uuid[], $2::text[], $3::int2[]) as u (id, lane, rank)
join {schema}.ready as t on t.lane = any(array[u.lane]) and t.rank = u.rank and t.id = u.id
order by t.id
for update of t skip locked
