-- Index entries alone, and never many more than $2 of them for each queue.
select n.name,
  (select count(*) from (
    select 1 from {schema}.ready r where r.lane = n.name limit $2::int8) x)
  + (select count(*) from (
    select 1 from {schema}.sched s where s.lane = n.name limit $2::int8) y)
from unnest($1::text[]) n (name)
