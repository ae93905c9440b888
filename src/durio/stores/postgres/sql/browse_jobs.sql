-- Jobs by id, wherever they are. Live ones have one lane row; history is only asked for
-- those that are found nowhere else. A join by `any(array[...])` can only be a probe.
with live as materialized (
  select j.id, j.lane, j.rank,
    case when r.id is not null then 3 when s.id is not null then 0 else 2 end as state,
    j.task, j.payload, j.retried, j.losses, j.lost, j.snoozed,
    coalesce(r.claim_no, s.claim_no, q.claim_no, 0) as claim_no, r.worker, j.opts, j.errors,
    r.progress, coalesce(r.cancel, false) as cancel, j.created_at, j.run_at, r.started_at,
    j.ukey
  from {schema}.job as j
  left join {schema}.run as r on r.id = any(array[j.id])
  left join {schema}.sched as s
    on s.lane = any(array[j.lane]) and s.run_at = j.run_at and s.id = j.id
  left join {schema}.ready as q
    on q.lane = any(array[j.lane]) and q.rank = j.rank and q.id = j.id
  where j.id = any($1::uuid[])
),
kept as materialized (
  select * from {schema}.kept
  where id = any(array(
    select id from unnest($1::uuid[]) as u (id) where id not in (select id from live)
  ))
)
select id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no,
  worker, opts, errors, progress, cancel, created_at, run_at, started_at,
  null::float8, null::bytea, null::float8, null::text, ukey
from live
union all
select id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no,
  null::int4, opts, errors, progress, false, created_at, run_at, started_at,
  finished_at, result, result_until, reason, ukey
from kept
union all
select id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no,
  null::int4, opts, errors, progress, false, created_at, run_at, started_at,
  finished_at, result, result_until, null::text, ukey
from {schema}.hist
where id = any(array(
  select id from unnest($1::uuid[]) as u (id)
  where id not in (select id from live) and id not in (select id from kept)
))
