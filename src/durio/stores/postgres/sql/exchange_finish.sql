-- Done outcomes, each fenced; which of them were taken. $1 to $10 as in `exchange`.
with
t as materialized (
  select coalesce($10::float8, extract(epoch from clock_timestamp())::float8) as now
),
go as materialized (select true as ok),
{done},
freed as materialized (
  select u.key, u.id from e
  join {schema}.uniq as u on u.key = e.ukey and u.id = e.id
  where e.umode <> 2 or (e.keep_seconds <= 0 and e.keep_count is null)
  order by u.key
  for update of u
),
k as (
  delete from {schema}.uniq as u using freed as f where u.key = f.key and u.id = f.id
)
select n::int4 from x
