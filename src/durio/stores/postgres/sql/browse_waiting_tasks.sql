-- The first $2 of each lane, of those that are ready and of those that are not due.
select j.task, count(*)
from unnest($1::text[]) as l (name)
cross join lateral (
  (select id from {schema}.ready as r where r.lane = l.name order by r.rank, r.id limit $2::int4)
  union all
  (select id from {schema}.sched as s where s.lane = l.name order by s.run_at limit $2::int4)
) as next
join {schema}.job as j on j.id = any(array[next.id])
group by j.task
