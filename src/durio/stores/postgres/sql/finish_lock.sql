select id from {schema}.run
where id = any($1::uuid[])
order by id
for update
