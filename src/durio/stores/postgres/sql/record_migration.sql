insert into {schema}.migration (number, name, checksum, applied_at)
values ($1::int4, $2::text, $3::text, extract(epoch from clock_timestamp())::float8)
