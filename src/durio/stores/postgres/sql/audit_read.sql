select at, who, verb, target, jobs from {schema}.audit
where $1::text is null or namespace = $1::text
order by seq desc limit $2::int8
