update {schema}.command set answered_at = $3::float8, answer = $4::text
where id = $1::int8 and worker = $2::int4 and answered_at is null
