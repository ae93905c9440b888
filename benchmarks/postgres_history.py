"""What a job costs the server as history grows, and while a snapshot stays open.

.venv/bin/python -m benchmarks.postgres_history --rows 10000000 --pin-seconds 300

Jobs are enqueued and then drained by a bare loop of exchanges, as a worker makes them. The
time is that of the server, from pg_stat_statements (without it: the time of the calls).
History is filled between the measurements, over the days that retention keeps. The last
part holds a snapshot open under full load. Exit code 1: a job was lost, or a cost is not
flat within --flat.
"""

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import postgres_target
from benchmarks.postgres_target import Ask
from durio.host.clock import HostClock
from durio.model.job import NewJob
from durio.model.outcome import Outcome, OutcomeKind
from durio.model.settings import DAY
from durio.ports.exchange import Lane
from durio.ports.lease import WorkerInfo
from durio.stores.postgres.finished_jobs import create_partition
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.store import PostgresStore

BATCH, ENQUEUED = 200, 500
LANE = "history:default"
DAYS = 6
CHUNK = 250_000
ROUNDS = 5
WINDOW_SECONDS = 10.0
LEASE_SECONDS = 86_400.0
PAYLOAD = b'[[42],{"to":"somebody@example.com"}]'

MAKE_METER = "create extension if not exists pg_stat_statements"
RESET_METER = "select pg_stat_statements_reset()"
READ_METER = """
select coalesce(sum(total_exec_time), 0)::float8 from pg_stat_statements
where query like '%for update skip locked%' and query like '%span.end_rank%'
"""
# Ids in our format: milliseconds since the epoch, then random bits.
FILL = """
insert into {schema}.hist (
  id, lane, rank, state, task, payload, retried, losses, lost, snoozed, claim_no,
  created_at, started_at, finished_at, result, result_until
)
select (
    lpad(to_hex((r.at * 1000)::int8), 12, '0') || '7' || substr(r.chance, 1, 3) || '8'
    || substr(r.chance, 4, 15)
  )::uuid, $3::text, 4, 4, 'history.pay', $4::bytea, 0, 0, 0, 0, 1,
  r.at, r.at + 1, r.at + 2, '42'::bytea, r.at + 3600
from (
  select extract(epoch from clock_timestamp())::float8
      - random() * $2::float8 as at, md5(random()::text || n::text) as chance
  from generate_series(1, $1::int8) as n
) as r
"""
COUNT = "select count(*) from {schema}.hist"
# Our own connections have a limit for idle transactions; this one must exceed it.
PIN = (
    "set idle_in_transaction_session_timeout = 0; "
    "begin isolation level repeatable read; select count(*) from pg_class"
)


@dataclass
class Bench:
    """One store, one worker, and the server's statistics of its time."""

    store: PostgresStore
    ask: Ask
    clock: HostClock
    worker: int = 0
    has_meter: bool = False
    done: int = 0

    async def measured(self, jobs: int) -> float:
        """Server time per job in microseconds, from an empty lane to an empty lane."""
        await self.enqueue(jobs)
        if self.has_meter:
            await self.ask(RESET_METER)
        took = await self.drain()
        if self.has_meter:
            took = (await self.ask(READ_METER))[0][0] / 1000
        return took / jobs * 1e6

    async def enqueue(self, jobs: int) -> None:
        for start in range(0, jobs, ENQUEUED):
            count = min(ENQUEUED, jobs - start)
            ids = [self.clock.new_id() for _ in range(count)]
            news = [NewJob(each, LANE, 4, "history.pay", PAYLOAD) for each in ids]
            await self.store.enqueue(news)

    async def drain(self) -> float:
        """Drain as a worker does; return the seconds that the calls took."""
        outcomes: list[Outcome] = []
        took = 0.0
        while True:
            began = time.perf_counter()
            answer = await self.store.exchange(
                self.worker, outcomes, [Lane(LANE, BATCH)], BATCH
            )
            took += time.perf_counter() - began
            if answer.rejected:
                raise SystemExit(f"BROKEN: {len(answer.rejected)} outcomes refused")
            self.done += len(outcomes)
            outcomes = [
                Outcome(claim.id, claim.claim_no, OutcomeKind.DONE, b"42")
                for claim in answer.claims
            ]
            if not outcomes:
                return took


async def main(options: argparse.Namespace) -> dict[str, Any]:
    async with postgres_target.target(options.store) as ground:
        url = await ground.new_store()
        store = PostgresStore(location_from_url(url), HostClock())
        await store.open()
        async with postgres_target.connected(url) as ask:
            bench = Bench(store, ask, HostClock())
            try:
                return await everything(bench, url, options)
            finally:
                await store.close()


async def everything(
    bench: Bench, url: str, options: argparse.Namespace
) -> dict[str, Any]:
    """All measurements on one schema."""
    bench.has_meter = await has_meter(bench.ask)
    info = WorkerInfo("history", "bench/1", "bench", 1, None, 10, "0")
    bench.worker = await bench.store.register(info, LEASE_SECONDS)
    await make_days(bench.store)
    await bench.measured(options.jobs)  # warm-up: plans, caches, first pages
    by_rows: dict[int, float] = {}
    filled = 0
    for step in range(options.steps + 1):
        wanted = options.rows * step // options.steps
        await fill(bench.ask, wanted - filled)
        filled = wanted
        await bench.store.tidy()
        costs = [await bench.measured(options.jobs) for _ in range(ROUNDS)]
        by_rows[filled + bench.done] = round(statistics.median(costs), 2)
        told = f"{filled + bench.done:,} finished rows: {by_rows[filled + bench.done]}"
        print(f"{told} us of the server per job", flush=True)
    expected = filled + bench.done
    pinned = await while_pinned(bench, url, options) if options.pin_seconds else []
    stored = (await bench.ask(COUNT))[0][0]
    if stored != filled + bench.done:
        raise SystemExit(f"BROKEN: {stored} rows in history, of {filled + bench.done}")
    first = next(iter(by_rows.values()))
    return {
        "time": "server" if bench.has_meter else "calls",
        "jobs_per_measurement": options.jobs,
        "us_per_job_by_finished_rows": by_rows,
        "growth": round(max(by_rows.values()) / first, 3),
        "rows_before_pin": expected,
        "us_per_job_while_pinned": pinned,
        "pinned_growth": round(max(pinned) / pinned[0], 3) if pinned else None,
    }


async def has_meter(ask: Ask) -> bool:
    """Whether the server has pg_stat_statements."""
    try:
        await ask(MAKE_METER)
        await ask(RESET_METER)
    except Exception as error:  # noqa: BLE001 - any refusal: we do without
        print(f"no pg_stat_statements ({error}): the time of the calls instead")
        return False
    return True


async def make_days(store: PostgresStore) -> None:
    """Make the partitions that a store of this age has; the leader makes those ahead."""
    today = int(time.time() // DAY)
    for day in range(today - DAYS - 1, today):
        await store.context.connections.write(
            lambda tx, day=day: create_partition(tx, day, today)
        )
    await store.prune(100, dead_count=1000)


async def fill(ask: Ask, rows: int) -> None:
    """Insert finished jobs, on the days before today and on today."""
    while rows > 0:
        await ask(FILL, min(rows, CHUNK), DAYS * DAY, LANE, PAYLOAD)
        rows -= CHUNK


async def while_pinned(
    bench: Bench, url: str, options: argparse.Namespace
) -> list[float]:
    """Cost per window under full load and an old snapshot; the first has no snapshot."""
    costs = [await window(bench, options.jobs)]
    async with postgres_target.connected(url) as pin:
        await pinned(pin)
        end = time.monotonic() + options.pin_seconds
        while time.monotonic() < end:
            costs.append(await window(bench, options.jobs))
            print(f"pinned: {costs[-1]} us of the server per job", flush=True)
        await pin("rollback")
    return costs


async def pinned(pin: Ask) -> None:
    """Begin and read: from here on no vacuum can remove row versions."""
    for sql in PIN.split("; "):
        await pin(sql)


async def window(bench: Bench, jobs: int) -> float:
    """Some seconds of full load, with the maintenance of a leader."""
    began = time.monotonic()
    costs: list[float] = []
    while not costs or time.monotonic() - began < WINDOW_SECONDS:
        costs.append(await bench.measured(jobs))
    await bench.store.tidy()
    return round(statistics.fmean(costs), 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="default: a PostgreSQL of its own")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of history")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10_000, help="per measurement")
    parser.add_argument("--pin-seconds", type=float, default=60.0)
    parser.add_argument("--flat", type=float, default=1.5)
    parser.add_argument("--json", type=Path, help="keep the figures there")
    given = parser.parse_args()
    figures = asyncio.run(main(given))
    text = json.dumps(figures, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    grown = [figures["growth"], figures["pinned_growth"] or 0.0]
    if max(grown) > given.flat:
        raise SystemExit(f"BROKEN: flat within {given.flat:g}, but {max(grown):g}")
