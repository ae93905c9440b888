insert into {schema}.lease as l (name, holder, token, expires_at)
values ($1::text, $2::int4, 1, $3::float8 + coalesce(
  $4::float8, extract(epoch from clock_timestamp())::float8
))
on conflict (name) do update
set holder = excluded.holder, token = l.token + (l.holder <> excluded.holder)::int4,
  expires_at = excluded.expires_at
where l.holder = excluded.holder or l.expires_at <= excluded.expires_at - $3::float8
returning token
