"""Jobs with a limited key against plain jobs, on one worker in this process.

    .venv/bin/python -m benchmarks.limits --jobs 20000 --keys 1000
    .venv/bin/python -m benchmarks.limits --store sqlite

Each round stores the jobs and then runs them, first plain ones and then the same with
`Concurrency(2, key=...)`. Prints jobs per second of the enqueue and of the work, and the CPU
time of this process per job, which also says something on a busy machine. Exits with 1 if more
than 2 jobs of a key ran at once, or if a place was left taken.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.postgres_target import SETTINGS, schemas_at
from durio import App, Concurrency
from tests.servers.postgres import PostgresServer

CAP = 2
ROWS = 1000  # per enqueue_many

app = App(name="limits", settings={"queue": {"embedded_max": 0}})
running: Counter[int] = Counter()
most: Counter[int] = Counter()


@app.task
async def plain(key: int) -> None:
    """Do nothing."""


@app.task(limits=[Concurrency(CAP, key="key")])
async def limited(key: int) -> None:
    """Count how many jobs of the key run, and let the others run meanwhile."""
    running[key] += 1
    most[key] = max(most[key], running[key])
    await asyncio.sleep(0)
    running[key] -= 1


@asynccontextmanager
async def stores(which: str) -> AsyncGenerator[str]:
    """Yield the URL of an empty store."""
    if which == "sqlite":
        with TemporaryDirectory(prefix="durio-limits-", dir=Path.cwd()) as folder:
            yield f"sqlite:///{folder}/jobs.db"
        return
    with PostgresServer(settings=SETTINGS) as server:
        async with schemas_at(server.url()) as schemas:
            yield await schemas.new_store()


async def measure(which: str, name: str, jobs: int, keys: int) -> None:
    task = {"plain": plain, "limited": limited}[name]
    async with stores(which) as url:
        app.url = url
        async with app:
            rows = [(n % keys,) for n in range(jobs)]
            began, cpu = time.perf_counter(), time.process_time()
            for start in range(0, jobs, ROWS):
                await task.enqueue_many(rows[start : start + ROWS])
            stored, cpu_stored = time.perf_counter(), time.process_time()
            async with app.worker(concurrency=100) as worker:
                await worker.drained()
                done, cpu_done = time.perf_counter(), time.process_time()
            left = [g for g in await (await app.store()).gates("", limit=9) if g.used]
            counted = [job async for job in app.jobs(state=("ready", "blocked"))]
    if left or counted:
        sys.exit(f"left: places {left}, jobs {counted[:3]}")
    print(
        f"{which:8} {name:8} enqueue {jobs / (stored - began):8,.0f}/s "
        f"({(cpu_stored - cpu) / jobs * 1e6:.1f} us CPU per job), "
        f"work {jobs / (done - stored):8,.0f}/s "
        f"({(cpu_done - cpu_stored) / jobs * 1e6:.1f} us)",
        flush=True,
    )


async def main(options: argparse.Namespace) -> None:
    for which in options.store or ["sqlite", "postgres"]:
        for _ in range(options.rounds):
            for name in ("plain", "limited"):
                await measure(which, name, options.jobs, options.keys)
    if max(most.values()) > CAP:
        sys.exit(f"{most.most_common(1)} jobs of a key ran at once")
    print(f"never more than {CAP} of {len(most)} keys at once, no place left taken")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", action="append", choices=["sqlite", "postgres"])
    asyncio.run(main(parser.parse_args()))
