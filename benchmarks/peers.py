"""Measure PgQueuer as `speed.py` measures Durio, on the same server.

    /path/to/python peers.py --store postgresql://... [--jobs 20000] [--wakeups 300]

`release.py --peer-python /path/to/python` runs it with that Python, which has PgQueuer
(`pip install pgqueuer`) and need not have Durio. The database must be empty; every case has
new tables. Prints one JSON object; exit code 3: PgQueuer is not installed.

- drain N: jobs of 100 bytes, one worker process, batches of N (10 is PgQueuer's default), from
  the first line of the first job to the first line of the last one. It fails when a job did
  not run exactly once.
- one: enqueues of 100 bytes, awaited one after the other.
- wake-up: from the call of `enqueue` to the first line of the job, in an idle worker.

Workers run on uvloop, as those of PgQueuer's command and those of Durio. The process that
enqueues runs on asyncio's own event loop, as in `speed.py`.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from importlib.metadata import version

try:
    import asyncpg
    import uvloop
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.models import Job
    from pgqueuer.queries import Queries
    from pgqueuer.types import QueueExecutionMode
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(3)

BATCHES = (10, 50, 200, 1000)
ONES, CHUNK = 1000, 5000
PAUSE_SECONDS = 0.02  # between two wake-ups: the worker is idle again
PAYLOAD = b"x" * 100
NOW, NOTHING = "now", "nothing"


async def drain_worker(url: str, batch: int) -> None:
    """Run all jobs; print when each began."""
    pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))
    began: list[float] = []

    @pgq.entrypoint(NOTHING)
    async def nothing(job: Job) -> None:  # noqa: ARG001 - the payload
        began.append(time.monotonic())

    await pgq.qm.run(batch_size=batch, mode=QueueExecutionMode.drain)
    print(json.dumps(began))


async def waiting_worker(url: str) -> None:
    """Print how long each job was under way, by the clock of this host."""
    pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @pgq.entrypoint(NOW)
    async def now(job: Job) -> None:
        began = time.monotonic()
        print(1000 * (began - float(job.payload or b"")), flush=True)

    await pgq.qm.run()


def start_worker(url: str, *flags: str) -> "subprocess.Popen[str]":
    command = [sys.executable, __file__, "--store", url, *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603


async def new_tables(queries: Queries) -> None:
    """Without them the dead rows of one case would slow the next one down."""
    await queries.uninstall()
    await queries.install()


async def drain(url: str, queries: Queries, jobs: int, batch: int) -> float:
    await new_tables(queries)
    for start in range(0, jobs, CHUNK):
        count = min(CHUNK, jobs - start)
        await queries.enqueue([NOTHING] * count, [PAYLOAD] * count, [0] * count)
    worker = start_worker(url, "--drain", str(batch))
    answer, _ = await asyncio.to_thread(worker.communicate)
    began = json.loads(answer.splitlines()[-1])
    if len(began) != jobs:
        sys.exit(f"{jobs} jobs, {len(began)} runs: lost or doubled")
    return (jobs - 1) / (max(began) - min(began))


async def one(queries: Queries) -> float:
    await new_tables(queries)
    began = time.perf_counter()
    for _ in range(ONES):
        await queries.enqueue("other", PAYLOAD)
    return ONES / (time.perf_counter() - began)


async def wakeups(url: str, queries: Queries, count: int) -> dict[str, float]:
    await new_tables(queries)
    worker = start_worker(url, "--wait")
    assert worker.stdout is not None  # noqa: S101 - for the type checker
    await queries.enqueue(NOW, str(time.monotonic()).encode())
    await asyncio.to_thread(worker.stdout.readline)  # it is ready
    await asyncio.sleep(1)
    for _ in range(count):
        await queries.enqueue(NOW, str(time.monotonic()).encode())
        await asyncio.sleep(PAUSE_SECONDS)
    waits = [float(worker.stdout.readline()) for _ in range(count)]
    worker.kill()
    worker.wait()
    shares = statistics.quantiles(waits, n=100)
    return {"wake-up p50 ms": shares[49], "wake-up p99 ms": shares[98]}


async def measure(options: argparse.Namespace) -> dict[str, float]:
    connection = await asyncpg.connect(options.store)
    queries = Queries(AsyncpgDriver(connection))
    found = {
        f"drain {batch}": await drain(options.store, queries, options.jobs, batch)
        for batch in BATCHES
    }
    found["one"] = await one(queries)
    found |= await wakeups(options.store, queries, options.wakeups)
    await queries.uninstall()
    await connection.close()
    return {name: round(value, 3) for name, value in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True, help="the URL of an empty database")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--wakeups", type=int, default=300)
    parser.add_argument("--drain", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--wait", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drain:
        uvloop.run(drain_worker(given.store, given.drain))
    elif given.wait:
        uvloop.run(waiting_worker(given.store))
    else:
        figures = asyncio.run(measure(given))
        name = f"PgQueuer {version('pgqueuer')}"
        print(json.dumps({"name": name, "figures": figures}))
