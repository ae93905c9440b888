insert into {schema}.audit (at, namespace, who, verb, target, jobs)
select at, namespace, who, verb, target, jobs
from unnest($1::float8[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int8[])
  with ordinality as u (at, namespace, who, verb, target, jobs, n)
order by n
