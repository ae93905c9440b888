-- Which of these are stored, and whether they are live.
select id, true from {schema}.job where id = any($1::uuid[])
union all
select id, false from {schema}.kept where id = any($1::uuid[])
union all
select id, false from {schema}.hist where id = any($1::uuid[])
