-- Jobs that nobody has touched since they came.
-- A join by `any(array[...])` can only be a probe.
with j as (
  delete from {schema}.job where id = any($1::uuid[]) returning lane, rank, run_at, id
),
r as (
  delete from {schema}.ready as q using j
  where q.lane = any(array[j.lane]) and q.rank = j.rank and q.id = j.id
),
s as (
  delete from {schema}.sched as d using j
  where d.lane = any(array[j.lane]) and d.run_at = j.run_at and d.id = j.id
)
delete from {schema}.kept where id = any($1::uuid[])
