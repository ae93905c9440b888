-- Every job between two names of lanes. It reads whole tables, once or twice in a lifetime.
select lane, state, sum(jobs)::int8 from (
  select lane, 2 as state, count(*) as jobs from {schema}.ready
  where lane >= $1::text and lane < $2::text group by lane
  union all
  select lane, 0, count(*) from {schema}.sched
  where lane >= $1::text and lane < $2::text group by lane
  union all
  select j.lane, 3, count(*) from {schema}.run as r join {schema}.job as j on j.id = r.id
  where j.lane >= $1::text and j.lane < $2::text group by j.lane
  union all
  select lane, state, count(*) from {schema}.kept
  where lane >= $1::text and lane < $2::text group by lane, state
  union all
  select lane, state, count(*) from {schema}.hist
  where lane >= $1::text and lane < $2::text group by lane, state
) as c
group by lane, state
