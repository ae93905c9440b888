-- Whoever was killed while it listened leaves a row behind: taken along after a while.
with at as materialized (
  select coalesce($3::float8, extract(epoch from clock_timestamp())::float8) as now
), gone as (
  delete from {schema}.lease l using at
  where starts_with(l.name, 'ear:') and l.name <> $1::text
    and l.expires_at < at.now - 60
)
insert into {schema}.lease (name, holder, token, expires_at)
select $1::text, 0, 0, at.now + $2::float8 from at
on conflict (name) do update set expires_at = excluded.expires_at
