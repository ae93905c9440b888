-- Cancelled before they ran again. $6 says which of them leave a trace.
-- A join by `any(array[...])` can only be a probe.
with u as materialized (
  select * from unnest(
    $1::uuid[], $2::int4[], $3::float8[], $4::text[], $5::int4[], $6::bool[]
  ) as u (id, claim_no, gone_at, bucket, keep_count, stays)
),
gone as (
  delete from {schema}.job as j using u where j.id = any(array[u.id])
  returning j.*, u.claim_no, u.gone_at, u.bucket, u.keep_count, u.stays
)
insert into {schema}.kept (
  id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
  errors, created_at, run_at, finished_at, ukey, umode, gone_at, bucket, keep_count
)
select id, lane, rank, 6, task, payload, retried, losses, lost, snoozed, claim_no, opts,
  errors, created_at, run_at, $7::float8, ukey, umode, gone_at, bucket, keep_count
from gone
where stays
