-- Workers whose lease is over, and those whose rescue has begun.
select id from {schema}.worker
where (rescued or expires_at <= coalesce(
    $1::float8, extract(epoch from clock_timestamp())::float8
  ))
  and ($2::text is null or namespace = $2::text)
order by id
for update skip locked
