"""Many schedules on one leader: CPU per tick, lateness, and the cost of those not due.

    .venv/bin/python -m benchmarks.schedules --schedules 10000 --minutes 2
    .venv/bin/python -m benchmarks.schedules --postgres

Creates schedules that are due every minute and runs one worker in this process. Lateness is
the time from the tick to the moment at which its job was made, and to the first line of
the job. CPU includes that of the jobs, which do nothing. Then it replaces the schedules by
ones that are due once a year, and measures the CPU of an idle worker, with and without them.
"""

import argparse
import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from benchmarks.postgres_target import SETTINGS, schemas_at
from durio import App, Context
from durio.model.effects import Effects, Put
from durio.model.ids import id_bytes, id_made_at
from durio.model.schedule import Definition, schedule_put, schedules_kind
from durio.model.schedule_change import new_record
from durio.model.schedule_rule import Rule
from tests.servers.postgres import PostgresServer

IDLE_SECONDS = 20.0
ROWS = 500  # per commit

made_late: list[float] = []
started_late: list[float] = []


def new_app(url: str) -> App:
    app = App(url, name="bench", settings={"log": {"level": "error"}})

    @app.task(name="nothing")
    async def nothing(ctx: Context) -> None:
        if ctx.tick is not None:
            due_at = ctx.tick.due_at.timestamp()
            made_late.append(id_made_at(id_bytes(ctx.job_id)) - due_at)
            started_late.append(time.time() - due_at)

    return app


async def create(app: App, count: int, rule: Rule) -> None:
    """Write schedules without the checks of `app.schedules.create`, many at a time."""
    store, now = await app.store(), app.clock.now()
    link = {"task": "bench.nothing", "args": [], "kwargs": {}}
    puts: list[Put] = []
    for number in range(count):
        record = new_record(Definition(link=link, rule=rule), now, is_manual=True)
        name = f"schedule-{number:06}"
        puts.append(schedule_put("bench", name, record, 0, record.next_at))
    for at in range(0, count, ROWS):
        await store.commit(Effects(puts=puts[at : at + ROWS]))


async def delete(app: App, count: int) -> None:
    store, kind = await app.store(), schedules_kind("bench")
    puts = [Put(kind, f"schedule-{number:06}", None) for number in range(count)]
    for at in range(0, count, ROWS):
        await store.commit(Effects(puts=puts[at : at + ROWS]))


async def idle(app: App, what: str) -> None:
    async with app.worker():
        await asyncio.sleep(3.0)  # it becomes the leader
        began = time.process_time()
        await asyncio.sleep(IDLE_SECONDS)
        used = (time.process_time() - began) / IDLE_SECONDS
    print(f"idle worker, {what}: {used * 1000:.2f} ms of CPU per second", flush=True)


def shown(values: list[float]) -> str:
    cuts = quantiles(values, n=100)
    return (
        f"p50 {median(values) * 1000:,.0f} ms, p99 {cuts[98] * 1000:,.0f} ms, "
        f"most {max(values) * 1000:,.0f} ms"
    )


async def measure(url: str, count: int, minutes: int) -> None:
    app = new_app(url)
    async with app:
        await idle(app, "no schedules")
        await create(app, count, Rule(cron="* * * * *"))
        began, cpu = time.time(), time.process_time()
        async with app.worker() as worker:
            until = began - began % 60 + 60 * minutes + 50
            await asyncio.sleep(until - time.time())
            await worker.drained(60)
        used = time.process_time() - cpu
        print(f"{len(made_late):,} ticks of {count:,} schedules")
        print(f"  tick to its job stored: {shown(made_late)}")
        print(f"  tick to the first line: {shown(started_late)}")
        print(
            f"  CPU of the worker: {used / len(made_late) * 1e6:,.0f} us per tick and job"
        )
        await delete(app, count)
        await create(app, count, Rule(cron="0 0 1 1 *"))
        await idle(app, f"{count:,} schedules that are not due")


async def main(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        if options.postgres:
            server = stack.enter_context(PostgresServer(settings=SETTINGS))
            schemas = await stack.enter_async_context(schemas_at(server.url()))
            url = await schemas.new_store()
        else:
            folder = stack.enter_context(TemporaryDirectory(prefix="durio-schedules-"))
            url = f"sqlite:///{Path(folder) / 'jobs.db'}"
        await measure(url, options.schedules, options.minutes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, default=2)
    parser.add_argument("--postgres", action="store_true")
    asyncio.run(main(parser.parse_args()))
