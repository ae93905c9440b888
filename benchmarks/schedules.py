"""Many schedules on one leader: CPU per tick, lateness, and the cost of those not due.

    .venv/bin/python -m benchmarks.schedules --schedules 10000 --minutes 5
    .venv/bin/python -m benchmarks.schedules --postgres

Runs one worker in this process. First it measures the CPU of the idle worker, without
schedules and with ones that are due once a year. Then it replaces them by schedules that
are all due at the start of each minute. Lateness is the time from the tick to the moment at
which its job was made, and to the first line of the job. CPU includes that of the jobs,
which do nothing, and not that of a PostgreSQL server. Exit code 1 when a tick has not
exactly one job.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.postgres_target import SETTINGS, schemas_at
from durio import App, Context
from durio.model.effects import Effects, Put
from durio.model.ids import id_bytes, id_made_at
from durio.model.schedule import Definition, schedule_put, schedules_kind
from durio.model.schedule_change import new_record
from durio.model.schedule_rule import Rule
from tests.servers.postgres import PostgresServer

LEAD_SECONDS = 3.0  # until a worker is the leader
CREATE_SECONDS = 30.0  # until all schedules are stored, and a worker leads
LAST_SECONDS = 50.0  # for the jobs of the last minute
MINUTE = 60.0
ROWS = 500  # per commit

ticks: Counter[tuple[str, float]] = Counter()
made_late: list[float] = []
started_late: list[float] = []


def new_app(url: str) -> App:
    app = App(url, name="bench", settings={"log": {"level": "error"}})

    @app.task(name="nothing")
    async def nothing(ctx: Context) -> None:
        if ctx.tick is not None:
            due_at = ctx.tick.due_at.timestamp()
            ticks[ctx.tick.schedule, due_at] += 1
            made_late.append(id_made_at(id_bytes(ctx.job_id)) - due_at)
            started_late.append(time.time() - due_at)

    return app


def name_of(number: int) -> str:
    return f"schedule-{number:06}"


async def create(app: App, count: int, rule: Rule) -> None:
    """Write schedules without the checks of `app.schedules.create`, many at a time."""
    store, now = await app.store(), app.clock.now()
    link: dict[str, Any] = {"task": "bench.nothing", "args": [], "kwargs": {}}
    puts: list[Put] = []
    for number in range(count):
        record = new_record(Definition(link=link, rule=rule), now, is_manual=True)
        name = name_of(number)
        puts.append(schedule_put("bench", name, record, 0, record.next_at))
    for at in range(0, count, ROWS):
        await store.commit(Effects(puts=puts[at : at + ROWS]))


async def delete(app: App, count: int) -> None:
    store, kind = await app.store(), schedules_kind("bench")
    puts = [Put(kind, name_of(number), None) for number in range(count)]
    for at in range(0, count, ROWS):
        await store.commit(Effects(puts=puts[at : at + ROWS]))


async def idle(app: App, what: str, seconds: float) -> None:
    async with app.worker():
        await asyncio.sleep(LEAD_SECONDS)
        began = time.process_time()
        await asyncio.sleep(seconds)
        used = (time.process_time() - began) / seconds
    print(f"idle worker, {what}: {used * 1000:.2f} ms of CPU per second", flush=True)


def shown(values: list[float]) -> str:
    cuts = quantiles(values, n=100)
    return (
        f"p50 {median(values) * 1000:,.0f} ms, p99 {cuts[98] * 1000:,.0f} ms, "
        f"most {max(values) * 1000:,.0f} ms"
    )


async def measure_ticks(app: App, count: int, minutes: int) -> bool:
    """Run schedules of one minute; return whether each tick has one job."""
    left = MINUTE - time.time() % MINUTE
    if left < CREATE_SECONDS:  # the minute would be over before a worker leads
        await asyncio.sleep(left)
    await create(app, count, Rule(cron="* * * * *"))
    began, cpu = time.time(), time.process_time()
    first = began - began % MINUTE + MINUTE
    async with app.worker() as worker:
        last = first + MINUTE * (minutes - 1)
        await asyncio.sleep(last + LAST_SECONDS - time.time())
        await worker.drained(MINUTE)
    used, seconds = time.process_time() - cpu, time.time() - began
    dues = [first + MINUTE * number for number in range(minutes)]
    wanted = Counter((name_of(number), due) for number in range(count) for due in dues)
    print(f"{ticks.total():,} jobs for {wanted.total():,} ticks of {count:,} schedules")
    print(f"  tick to its job made: {shown(made_late)}")
    print(f"  tick to the first line: {shown(started_late)}")
    print(
        f"  CPU of the worker: {used / len(made_late) * 1e6:,.0f} us per tick and job, "
        f"{used / seconds:.1%} of a core"
    )
    return ticks == wanted


async def measure(url: str, options: argparse.Namespace) -> bool:
    count: int = options.schedules
    app = new_app(url)
    async with app:
        async with app.worker():  # what a first worker does once is not measured
            await asyncio.sleep(LEAD_SECONDS)
        await idle(app, "no schedules", options.idle_seconds)
        await create(app, count, Rule(cron="0 0 1 1 *"))
        what = f"{count:,} schedules that are not due"
        await idle(app, what, options.idle_seconds)
        await delete(app, count)
        return await measure_ticks(app, count, options.minutes)


async def main(options: argparse.Namespace) -> bool:
    async with AsyncExitStack() as stack:
        if options.postgres:
            server = stack.enter_context(PostgresServer(settings=SETTINGS))
            schemas = await stack.enter_async_context(schemas_at(server.url()))
            url = await schemas.new_store()
        else:
            folder = stack.enter_context(TemporaryDirectory(prefix="durio-schedules-"))
            url = f"sqlite:///{Path(folder) / 'jobs.db'}"
        return await measure(url, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, default=5)
    # A whole minute: once in it the leader looks which schedules are declared.
    parser.add_argument("--idle-seconds", type=float, default=MINUTE)
    parser.add_argument("--postgres", action="store_true")
    sys.exit(not asyncio.run(main(parser.parse_args())))
