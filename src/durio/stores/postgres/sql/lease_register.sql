insert into {schema}.worker (namespace, queues, info, expires_at)
values ($1::text, $2::text, $3::text, $4::float8 + coalesce(
  $5::float8, extract(epoch from clock_timestamp())::float8
))
returning id
