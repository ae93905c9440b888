-- Progress, and the mark of a job that is about to run alone; what the fence lets through.
-- A row that somebody holds is left as it is: a task's own transaction ends that job, and its
-- commit may last. Its progress is worth nothing then, and not refused.
-- A join by `any(array[...])` can only be a probe.
with mine as materialized (
  select r.id, r.claim_no, u.progress, u.alone
  from unnest($1::uuid[], $2::int4[], $3::bytea[], $4::bool[])
    as u (id, claim_no, progress, alone)
  join {schema}.run as r
    on r.id = any(array[u.id]) and r.claim_no = u.claim_no and r.worker + 0 = $5::int4
),
free as materialized (
  select r.id, m.progress, m.alone
  from mine as m
  join {schema}.run as r on r.id = any(array[m.id]) and r.claim_no = m.claim_no
  for update of r skip locked
),
noted as (
  update {schema}.run as r
  set progress = coalesce(f.progress, r.progress), alone = r.alone or f.alone
  from free as f
  where r.id = any(array[f.id])
)
select m.id, m.claim_no from mine as m
