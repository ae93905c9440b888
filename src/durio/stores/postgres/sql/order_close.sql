-- Nobody will answer these any more.
update {schema}.command set answered_at = $2::float8, answer = ''
where worker = any($1::int4[]) and answered_at is null
