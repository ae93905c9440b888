-- Each place that holds one of these jobs; -1 is a live job that no lane has.
-- A join by `any(array[...])` can only be a probe.
select j.id,
  case
    when r.id is not null then 3 when s.id is not null then 0 when q.id is not null then 2
    else -1
  end,
  coalesce(r.claim_no, s.claim_no, q.claim_no, 0), j.payload, j.lane, j.rank, j.task,
  j.run_at, j.created_at, null::bytea
from {schema}.job as j
left join {schema}.run as r on r.id = any(array[j.id])
left join {schema}.sched as s
  on s.lane = any(array[j.lane]) and s.run_at = j.run_at and s.id = j.id
left join {schema}.ready as q
  on q.lane = any(array[j.lane]) and q.rank = j.rank and q.id = j.id
where j.id = any($1::uuid[])
union all
select id, state, claim_no, payload, lane, rank, task, run_at, created_at, result
from {schema}.kept where id = any($1::uuid[])
union all
select id, state, claim_no, payload, lane, rank, task, run_at, created_at, result
from {schema}.hist where id = any($1::uuid[])
