-- The gate out of `running`: model/transitions.py in SQL, and nothing else leaves by
-- another door but `done`.
--
-- $1 ids  $2 claim numbers  $3 workers  $4 kinds  $5 delays  $6 errors or null  $7 reasons
-- $8 guilty  $9 nobody here knows its task  $10 seconds, $11 bucket, $12 count: a retention of
-- its own if cancelled  $13 now, null: the server's  $14 and $15 seconds that done and dead
-- jobs stay. A row that does not come back was refused by the fence.
--
-- A loss is recorded as an error only where it charges or convicts.
-- A join by `any(array[...])` can only be a probe: statements.py says why.
with
t as materialized (
  select coalesce($13::float8, extract(epoch from clock_timestamp())::float8) as now
),
y as (
  delete from {schema}.run as r
  using unnest(
    $1::uuid[], $2::int4[], $3::int4[], $4::int2[], $5::float8[], $6::bytea[], $7::text[],
    $8::bool[], $9::bool[], $10::float8[], $11::text[], $12::int4[]
  ) with ordinality as o (
    id, claim_no, worker, kind, delay, error, reason, guilty, parks, keep_seconds, bucket,
    keep_count, n
  )
  where r.id = any(array[o.id]) and r.claim_no = o.claim_no and r.worker + 0 = o.worker
  returning r.id, r.claim_no, r.cancel, r.alone, r.started_at, r.progress, o.kind, o.delay,
    o.error, o.reason, o.guilty, o.parks, o.keep_seconds, o.bucket, o.keep_count, o.n
),
w as (
  select y.*, t.now, b.lane, b.rank, b.task, b.ukey, b.umode,
    y.kind = 6 and not y.cancel and b.lost < 2 as charged,
    case
      when y.cancel or y.kind = 5 then 6
      when y.kind = 4 or (y.kind = 6 and b.lost >= 2 and (y.alone or y.guilty)) then 5
      when y.delay > 0 then 0
      else 2
    end as way
  from t, y join {schema}.job as b on b.id = any(array[y.id])
),
g as materialized (
  select w.*, w.error is not null and (w.kind <> 6 or w.charged or w.way = 5) as is_told
  from w
),
-- A release that changes nothing writes nothing.
u as (
  update {schema}.job as b
  set
    retried = b.retried + (g.kind = 1)::int4,
    snoozed = b.snoozed + (g.kind = 2)::int4,
    losses = b.losses + g.charged::int4,
    lost = case g.kind when 3 then b.lost when 6 then b.lost + g.charged::int4 else 0 end,
    run_at = case when g.way = 0 then g.now + g.delay else b.run_at end,
    parked_at = case when g.parks then coalesce(b.parked_at, g.now) end,
    errors = case
      when g.is_told then
        (array_append(b.errors, g.error))[greatest(cardinality(b.errors) - 48, 1):]
      else b.errors
    end
  from g
  where b.id = any(array[g.id]) and g.way <= 2
    and (g.kind <> 3 or g.way = 0 or g.parks or b.parked_at is not null)
),
s as (
  insert into {schema}.sched (lane, run_at, id, claim_no)
  select lane, now + delay, id, claim_no from g where way = 0
),
r as (
  insert into {schema}.ready (lane, rank, id, claim_no)
  select lane, rank, id, claim_no from g where way = 2
),
f as (
  delete from {schema}.job as b using g where b.id = any(array[g.id]) and g.way >= 5
  returning b.id, b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost, b.snoozed,
    b.run_at, b.ukey, b.umode, b.opts, b.created_at,
    case
      when g.is_told then
        (array_append(b.errors, g.error))[greatest(cardinality(b.errors) - 48, 1):]
      else b.errors
    end as errors,
    g.claim_no, g.started_at, g.progress, g.way, g.reason, g.now, g.keep_seconds, g.bucket,
    g.keep_count
),
e as (
  insert into {schema}.kept (
    id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, finished_at, ukey, umode, reason,
    gone_at, bucket, keep_count
  )
  select id, lane, rank, way, task, payload, retried, losses, lost, snoozed, claim_no, opts,
    errors, progress, created_at, run_at, started_at, now, ukey, umode,
    case when way = 5 then reason end,
    now + case when way = 5 then $15::float8 else coalesce(keep_seconds, $14::float8) end,
    case when way = 6 and keep_count is not null then bucket end,
    case when way = 6 then keep_count end
  from f
  where way = 5 or keep_seconds is null or keep_seconds > 0 or keep_count is not null
)
-- A window outlives all ends but a cancel. A key that holds only while waiting was let go by
-- the claim, unless somebody had asked for it right then.
select n::int4, case
    when way = 6 or (way = 5 and umode <> 2) or umode = 0 then ukey
  end, way, lane, task, rank
from g
order by n
