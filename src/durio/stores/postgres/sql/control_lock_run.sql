-- Whoever has finished one meanwhile has its row: then it does not come back.
select id, worker from {schema}.run
where id = any($1::uuid[])
order by id
for update
