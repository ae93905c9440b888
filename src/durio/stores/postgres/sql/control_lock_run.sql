-- Whoever has finished one meanwhile has its row: then it does not come back. Nor does one that
-- somebody holds right now: a task's own transaction ends it, and its commit may last.
select id, worker from {schema}.run
where id = any($1::uuid[])
order by id
for update skip locked
