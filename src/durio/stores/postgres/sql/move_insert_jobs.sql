-- Jobs of another store as they are there. What is over goes to `kept`, with the end of its
-- retention: days of history are for what ends here.
with u as materialized (
  select * from unnest(
    $1::uuid[], $2::text[], $3::int2[], $4::int2[], $5::text[], $6::bytea[], $7::int4[],
    $8::int4[], $9::int2[], $10::int4[], $11::int4[], $12::float8[], $13::float8[],
    $14::float8[], $15::bytea[], $16::int2[], $17::bytea[], $18::text[], $19::bytea[],
    $20::float8[], $21::float8[], $22::float8[], $23::bytea[], $24::float8[], $25::text[],
    $26::text[], $27::int4[], $28::int8[]
  ) as u (
    id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, run_at,
    parked_at, started_at, ukey, umode, opts, errors, progress, created_at, finished_at,
    gone_at, result, result_until, reason, bucket, keep_count, died_no
  )
),
j as (
  insert into {schema}.job (
    id, lane, rank, task, payload, retried, losses, lost, snoozed, run_at, parked_at, ukey,
    umode, opts, errors, created_at
  )
  select id, lane, rank, task, payload, retried, losses, lost, snoozed, run_at, parked_at,
    ukey, umode, opts, errors::bytea[], created_at
  from u where state <= 2
),
r as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select lane, rank, id, claim_no from u where state = 2
),
s as (
  insert into {schema}.sched (lane, run_at, id, claim_no)
  select lane, run_at, id, claim_no from u where state = 0
)
insert into {schema}.kept (
  id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
  errors, progress, created_at, run_at, started_at, finished_at, result, result_until, ukey,
  umode, reason, died_no, gone_at, bucket, keep_count
)
select id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
  errors::bytea[], progress, created_at, run_at, started_at, finished_at, result,
  result_until, ukey, umode, reason, died_no, gone_at, bucket, keep_count
from u where state >= 4
