select id, lane, opts, ukey from {schema}.job
where id = any($1::uuid[])
order by id
for update
