-- Done outcomes, each fenced; which of them were taken, and which keys they let go.
-- $1 to $10 as in `exchange`.
with
t as materialized (
  select coalesce($10::float8, extract(epoch from clock_timestamp())::float8) as now
),
go as materialized (select true as ok),
{done}
select x.n::int4, null::uuid, null::bytea from x
union all
select e.n::int4, e.id, e.ukey from e
where e.umode <> 2 or (e.keep_seconds <= 0 and e.keep_count is null)
