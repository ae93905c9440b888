"""The bare driver on PostgreSQL: the same rows in the same tables, without Durio.

A loop around one connection of the driver that the URL names. It inserts, claims and
finishes rows in batches, in a schema that the store's migrations made. One statement and
one commit finish a batch and claim the next. The statements are the simplest ones with the
same fences: no keys, no bounds, no due times, no leases. They find rows by arrays of ids
and not by joins: the plan must stay the same when the server has just analyzed an empty
table.
"""

from collections.abc import Sequence
from typing import Any

from durio.bench.raw_sqlite import BATCH, LANE, RESULT_SECONDS, TASK, WORKER, RawRates
from durio.host.clock import HostClock
from durio.stores.postgres.driver import Connection, Row
from durio.stores.postgres.statements import SchemaStatements

INSERT = """
with j as (
  insert into {schema}.job (id, lane, rank, task, payload, created_at)
  select u.id, $3::text, 4, $4::text, u.payload,
    extract(epoch from clock_timestamp())::float8
  from unnest($1::uuid[], $2::bytea[]) as u (id, payload)
  on conflict (id) do nothing
  returning lane, rank, id
)
insert into {schema}.ready (lane, rank, id) select lane, rank, id from j returning id
"""
CYCLE = """
with
t as materialized (select extract(epoch from clock_timestamp())::float8 as now),
x as (
  delete from {schema}.run as r
  where r.id = any($1::uuid[]) and r.worker + 0 = $4::int4
    and r.claim_no = ($2::int4[])[width_bucket(r.id, $1::uuid[])]
  returning r.id, r.started_at
),
xs as materialized (
  select array_agg(x.id order by x.id) as ids, array_agg(x.started_at order by x.id) as at
  from x
),
j as (
  delete from {schema}.job as b where b.id = any((select ids from xs)::uuid[])
  returning b.id, b.lane, b.rank, b.task, b.payload, b.retried, b.losses, b.lost,
    b.snoozed, b.created_at, width_bucket(b.id, $1::uuid[]) as n,
    (select at from xs)[width_bucket(b.id, (select ids from xs))] as started_at
),
h as (
  insert into {schema}.hist (
    id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no,
    created_at, started_at, finished_at, result, result_until
  )
  select id, lane, rank, 4, task, payload, retried, losses, lost, snoozed,
    ($2::int4[])[n], created_at, started_at, t.now, ($3::bytea[])[n], t.now + $7::float8
  from j, t
),
c as materialized (
  select r.ctid as place from {schema}.ready as r
  where r.lane = $5::text order by r.rank, r.id limit $6::int4
  for update skip locked
),
d as (
  delete from {schema}.ready as r where r.ctid = any(array(select place from c))
  returning r.id, r.claim_no
),
n as (
  insert into {schema}.run (id, worker, claim_no, started_at)
  select d.id, $4::int4, d.claim_no + 1, t.now from d, t
  returning id, claim_no
),
ns as materialized (
  select array_agg(n.id order by n.id) as ids, array_agg(n.claim_no order by n.id) as nos
  from n
)
select b.id, (select nos from ns)[width_bucket(b.id, (select ids from ns))], b.task,
  b.payload
from {schema}.job as b where b.id = any((select ids from ns)::uuid[])
"""
COUNT = "select count(*) from {schema}.hist"


async def measure_raw_postgres(
    connection: Connection, schema: str, jobs: int
) -> RawRates:
    """Measure one pass in a new schema; raises DriverError."""
    clock = HostClock()
    filled = SchemaStatements(schema)
    began = clock.monotonic()
    for start in range(0, jobs, BATCH):
        numbers = range(start, min(start + BATCH, jobs))
        ids = [clock.new_id() for _ in numbers]
        payloads = [b"[[%d],{}]" % number for number in numbers]
        await connection.rows(filled[INSERT], (ids, payloads, LANE, TASK))
    inserted = clock.monotonic()
    await drain(connection, filled[CYCLE])
    ended = clock.monotonic()
    (finished,) = (await connection.rows(filled[COUNT], ()))[0]
    if finished != jobs:
        raise AssertionError(f"the bare driver finished {finished} of {jobs} jobs")
    return RawRates(jobs / (ended - began), jobs / (ended - inserted))


async def drain(connection: Connection, cycle: str) -> None:
    """Finish a batch and claim the next, until no job is left."""
    claimed: Sequence[Row] = ()
    while True:
        done = columns_of(claimed)
        claimed = await connection.rows(
            cycle, (*done, WORKER, LANE, BATCH, RESULT_SECONDS)
        )
        if not claimed:
            return


def columns_of(claimed: Sequence[Row]) -> tuple[list[Any], ...]:
    """Return ids and claim numbers in lock order (by id), and one result per row."""
    rows = sorted((row[0], row[1]) for row in claimed)
    return [i for i, _ in rows], [no for _, no in rows], [b"0"] * len(rows)
