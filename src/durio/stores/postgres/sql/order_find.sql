select id, verb from {schema}.command
where worker = $1::int4 and answered_at is null
order by id limit 100
