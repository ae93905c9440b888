"""Jobs of a batch task beside single ones: jobs per second, and CPU time of the worker per job.

    .venv/bin/python -m benchmarks.batch
    .venv/bin/python -m benchmarks.batch --postgres --jobs 50000 --slots 1

Each pass makes a new store, enqueues the jobs with `enqueue_many`, and starts one worker that
drains them and ends. The function does nothing. Rates go from the first claim to the last
finish; CPU time is user + system of the worker, from ready to drained. The best of all passes
counts. `--postgres` starts a durable server from the wheel of the tests. Exits with 1 when a
job did not run exactly once.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.postgres_target import SETTINGS, schemas_at
from durio import App
from durio.limits import Batch
from tests.servers.postgres import PostgresServer

REPORT_VARIABLE = "BATCH_REPORT"
WAIT_SECONDS = 600.0

calls = runs = 0  # in this process
first = last = 0.0  # monotonic times of the first and the last call


@asynccontextmanager
async def report_costs() -> AsyncGenerator[None]:
    """Entered when the worker is ready, left when it has drained."""
    before = time.process_time()
    yield
    write_report(time.process_time() - before)


def write_report(seconds: float) -> None:
    if path := os.environ.get(REPORT_VARIABLE):
        told = {"cpu": seconds, "calls": calls, "runs": runs, "took": last - first}
        Path(path).write_text(json.dumps(told))


app = App(name="batch", deps=report_costs)


def count(jobs: int) -> None:
    global calls, runs, first, last  # noqa: PLW0603 - the report says how many jobs ran
    calls, runs, last = calls + 1, runs + jobs, time.monotonic()
    first = first or last


@app.task(name="single")
async def single(number: int) -> int:
    """Return the argument."""
    count(1)
    return number


@app.task(name="gathered", batch=Batch(64, "50ms"))
async def gathered(numbers: list[int]) -> list[int]:
    """Return the arguments."""
    count(len(numbers))
    return numbers


async def measure(url: str, name: str, jobs: int, slots: int) -> dict[str, float]:
    app.url = url
    async with app:
        task = {"single": single, "gathered": gathered}[name]
        await task.enqueue_many([(number,) for number in range(jobs)])
    told = drain(url, slots)
    if told["runs"] != jobs:
        sys.exit(f"{jobs} jobs, {told['runs']} runs: jobs were lost or doubled")
    return told


def drain(url: str, slots: int) -> dict[str, float]:
    """Run one worker to its end; return its report."""
    with TemporaryDirectory(prefix="durio-batch-") as folder:
        report = Path(folder) / "report.json"
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = ["worker", "benchmarks.batch:app", "--burst", "-c", str(slots)]
        worker = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "durio", *command, "--store", url],
            env={**environ, REPORT_VARIABLE: str(report)},
            capture_output=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        if worker.returncode:
            sys.exit(
                f"the worker ended with {worker.returncode}: {worker.stderr!r:.2000}"
            )
        return json.loads(report.read_text())


async def compare(options: argparse.Namespace, urls: "list[str]", store: str) -> None:
    found: dict[str, list[dict[str, float]]] = {"single": [], "gathered": []}
    left = iter(urls)
    for _ in range(options.passes):
        for name, told in found.items():
            told.append(await measure(next(left), name, options.jobs, options.slots))
    for name, told in found.items():
        rate = max(options.jobs / one["took"] for one in told)
        cpu = min(one["cpu"] for one in told) / options.jobs * 1e6
        size = options.jobs / told[-1]["calls"]
        print(
            f"{store}, {options.slots} slots, {name}: {rate:,.0f} jobs/s, "
            f"{cpu:.1f} us CPU per job, {size:.1f} jobs per call",
            flush=True,
        )


async def main(options: argparse.Namespace) -> None:
    passes = range(2 * options.passes)
    if not options.postgres:
        with TemporaryDirectory(prefix="durio-batch-", dir=Path.cwd()) as folder:
            urls = [f"sqlite:///{folder}/{number}.db" for number in passes]
            await compare(options, urls, "SQLite")
        return
    with PostgresServer(settings=SETTINGS) as server:
        async with schemas_at(server.url()) as schemas:
            urls = [await schemas.new_store() for _ in passes]
            await compare(options, urls, "PostgreSQL")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--passes", type=int, default=3)
    asyncio.run(main(parser.parse_args()))
