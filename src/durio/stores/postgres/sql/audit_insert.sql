insert into {schema}.audit (at, namespace, who, verb, target, jobs)
values ($1::float8, $2::text, $3::text, $4::text, $5::text, $6::int8)
returning seq
