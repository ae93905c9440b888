-- The lane rows of the holders that wait: from here on nobody claims or cancels them. Those
-- who hold the keys when these are locked, later, may be others.
-- A join by `any(array[...])` can only be a probe.
with h as materialized (
  select j.id, j.lane, j.rank, j.run_at
  from {schema}.uniq u join {schema}.job j on j.id = any(array[u.id])
  where u.key = any($1::bytea[])
  order by u.id
),
r as materialized (
  select r.id from h join {schema}.ready r
    on r.lane = any(array[h.lane]) and r.rank = h.rank and r.id = h.id
  for update of r
),
s as materialized (
  select s.id from h join {schema}.sched s
    on s.lane = any(array[h.lane]) and s.run_at = h.run_at and s.id = h.id
  for update of s
)
select id from r union all select id from s
