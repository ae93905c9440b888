-- Whether anybody but us listens.
select l.name from {schema}.lease l
where starts_with(l.name, 'ear:') and l.name <> $1::text
  and l.expires_at > coalesce($2::float8, extract(epoch from clock_timestamp())::float8)
limit 1
