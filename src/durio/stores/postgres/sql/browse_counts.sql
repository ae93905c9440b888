-- Index entries of the narrow tables; but for running jobs, of which there are few: each leads
-- to its job, and never the other way (`any(array[...])`, statements.py).
select lane, 2 as state, count(*) from {schema}.ready
where lane >= $1::text and lane < $2::text group by lane
union all
select lane, 0, count(*) from {schema}.sched
where lane >= $1::text and lane < $2::text group by lane
union all
select j.lane, 3, count(*)
from {schema}.run as r join {schema}.job as j on j.id = any(array[r.id])
where j.lane >= $1::text and j.lane < $2::text group by j.lane
union all
select lane, 5, count(*) from {schema}.kept
where state = 5 and lane >= $1::text and lane < $2::text group by lane
