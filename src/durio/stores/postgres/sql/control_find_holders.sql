-- Which of these are stored, and whether they are live and wait, live and run, or are over.
-- A cancelled one answers for nothing.
select b.id, true, (select 1 from {schema}.run as r where r.id = b.id) is not null
from {schema}.job as b where b.id = any($1::uuid[])
union all
select id, false, false from {schema}.kept where id = any($1::uuid[]) and state <> 6
union all
select id, false, false from {schema}.hist where id = any($1::uuid[])
