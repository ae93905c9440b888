"""Jobs per second and wake-ups of the `durio` package that Python imports, case by case.

Uses only the public API, so that it also runs against an older checkout:

    cd /tmp && PYTHONPATH=/path/to/old/src python /path/to/new/benchmarks/speed.py --json

Run it in another directory than a checkout, as `cpu_per_job.py`. Every case has a new store.
A drain goes from the first line of the first job to the first line of the last one, by the
clock that all processes of a host share. The first job waits until all processes are ready.
It fails when a job did not run exactly once.

| case | what |
|---|---|
| drain | jobs of 100 bytes without a result, one worker process |
| drain 2 | the same, two processes |
| drain 4k | jobs of 4 KiB |
| drain results | jobs that return a number |
| naps | jobs that sleep 0.5 s in 500 slots: seconds from the first start to the last end |
| one | enqueues awaited one after the other |
| hundred | enqueues of 100 callers at once |
| many | `enqueue_many` |
| wake-up | from the call of `enqueue` to the first line of the task, in milliseconds |

These run with `--sweep`, or by name with `--only`:

| case | what |
|---|---|
| drain 4 | as drain, four processes |
| drain 1k, drain 16k | jobs of 1 KiB, of 16 KiB |
| prefetch 64, 256, 1024, 2048 | as drain, with this `worker.prefetch` |
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import durio
from durio import App

FOLDER = Path(__file__).resolve().parent
PACKAGE = str(Path(durio.__file__).resolve().parent)
REPORTS = "SPEED_REPORTS"  # the folder that workers write to
PROCESSES = "SPEED_PROCESSES"  # how many of them
PREFETCHES = (64, 256, 1024, 2048)
NAP_SECONDS, NAPS, SLOTS = 0.5, 2000, 500
PAUSE_SECONDS = 0.02  # between two wake-ups: the worker is idle again
ONES, CALLERS = 1000, 100
WAIT_SECONDS = 600.0

runs: list[float] = []  # when each job began, or ended, in this process


@asynccontextmanager
async def report_runs() -> AsyncGenerator[None]:
    """Entered before the first claim, left when the worker has drained."""
    if folder := os.environ.get(REPORTS):
        await wait_for_processes(Path(folder), int(os.environ[PROCESSES]))
    yield
    write_report()


async def wait_for_processes(folder: Path, count: int) -> None:
    """Wait until every process is ready, so that all of them share the jobs."""
    (folder / f"{os.getpid()}.ready").touch()
    while processes_ready(folder) < count:  # noqa: ASYNC110 - they are other processes
        await asyncio.sleep(0.005)


def processes_ready(folder: Path) -> int:
    return len([*folder.glob("*.ready")])


def write_report() -> None:
    if folder := os.environ.get(REPORTS):
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(runs))


def read_reports(folder: Path) -> list[float]:
    """Return the times of all processes, in order."""
    paths = folder.glob("*.json")
    return sorted(at for path in paths for at in json.loads(path.read_text()))


app = App(name="speed", deps=report_runs)


@app.task(name="nothing")
async def nothing(text: str) -> None:  # noqa: ARG001 - the payload
    """Note the time."""
    runs.append(time.monotonic())


@app.task(name="number")
async def number(text: str) -> int:
    """Note the time, and return a number."""
    runs.append(time.monotonic())
    return len(text)


@app.task(name="nap")
async def nap() -> None:
    """Sleep, with the time before and after."""
    runs.append(time.monotonic())
    await asyncio.sleep(NAP_SECONDS)
    runs.append(time.monotonic())


@app.task(name="now")
async def now() -> float:
    """When the task began."""
    return time.monotonic()


class Bench:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self.made = 0

    async def new_store(self) -> None:
        """Open the App on another new store."""
        await self.remove_store()
        self.made += 1
        if self.options.store is None:
            app.url = f"sqlite:///{self.folder / f'{self.made}.db'}"
        else:
            separator = "&" if "?" in self.options.store else "?"
            app.url = f"{self.options.store}{separator}schema={self.schema}"
            migrate(app.url)
        await app.store()

    async def remove_store(self) -> None:
        await app.close()
        if self.options.store is not None and self.made:
            import asyncpg  # noqa: PLC0415 - for PostgreSQL only

            connection = await asyncpg.connect(self.options.store)
            await connection.execute(f"drop schema if exists {self.schema} cascade")
            await connection.close()

    @property
    def schema(self) -> str:
        return f"speed_{os.getpid()}_{self.made}"

    # --- drains

    async def drain(
        self,
        task: Any = nothing,
        size: int = 100,
        *,
        processes: int = 1,
        share: float = 1.0,
        prefetch: int | None = None,
    ) -> float:
        jobs = int(self.options.jobs * share)
        await self.new_store()
        await task.enqueue_many([("x" * size,)] * jobs)
        environ = {PROCESSES: f"{processes}"}
        if prefetch is not None:
            environ["DURIO_WORKER__PREFETCH"] = f"{prefetch}"
        flags = ["--burst", f"--processes={processes}"]
        times = await self.work(jobs, flags, environ)
        return (jobs - 1) / (times[-1] - times[0])

    async def naps(self) -> float:
        await self.new_store()
        await nap.enqueue_many([()] * NAPS)
        flags = ["--burst", f"--concurrency={SLOTS}"]
        times = await self.work(2 * NAPS, flags, {PROCESSES: "1"})
        return times[-1] - times[0]

    async def work(
        self, count: int, flags: list[str], environ: dict[str, str]
    ) -> list[float]:
        """Run a worker to its end; return the times of all its jobs."""
        with tempfile.TemporaryDirectory(dir=self.folder) as reports:
            worker = self.start_worker(flags, {REPORTS: reports, **environ})
            if await asyncio.to_thread(worker.wait, WAIT_SECONDS) != 0:
                sys.exit("the worker failed: " + self.log().read_text()[-2000:])
            times = read_reports(Path(reports))
        if len(times) != count:
            sys.exit(f"{count} times expected, {len(times)} found: lost or doubled")
        return times

    def log(self) -> Path:
        return self.folder / "worker.log"

    def start_worker(
        self, flags: list[str], environ: dict[str, str]
    ) -> "subprocess.Popen[bytes]":
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(FOLDER)])
        environ = {**os.environ, **environ, "DURIO_URL": app.url, "PYTHONPATH": path}
        command = [sys.executable, "-m", "durio", "worker", "speed:app", *flags]
        with self.log().open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own program
                command, env=environ, cwd=self.folder, stdout=log, stderr=log
            )

    # --- enqueues and wake-ups

    async def one(self) -> float:
        await self.new_store()
        return await rate(ONES, enqueue_each(ONES))

    async def hundred(self) -> float:
        await self.new_store()
        share = self.options.jobs // CALLERS // 4
        each = (enqueue_each(share) for _ in range(CALLERS))
        return await rate(share * CALLERS, asyncio.gather(*each))

    async def many(self) -> float:
        await self.new_store()
        rows = [("x" * 100,)] * self.options.jobs
        return await rate(len(rows), nothing.enqueue_many(rows))

    async def wakeups(self) -> dict[str, float]:
        await self.new_store()
        worker = self.start_worker([], {})
        await (await now.enqueue()).result(WAIT_SECONDS)
        called: list[float] = []
        jobs: list[durio.Job[float]] = []
        for _ in range(self.options.wakeups):
            called.append(time.monotonic())
            jobs.append(await now.enqueue())
            await asyncio.sleep(PAUSE_SECONDS)
        began = [await job.result(WAIT_SECONDS) for job in jobs]
        worker.terminate()
        await asyncio.to_thread(worker.wait, WAIT_SECONDS)
        waits = [1000 * (b - a) for a, b in zip(called, began, strict=True)]
        shares = statistics.quantiles(waits, n=100)
        return {"wake-up p50 ms": shares[49], "wake-up p99 ms": shares[98]}


def migrate(url: str) -> None:
    command = [sys.executable, "-m", "durio", "migrate", "--store", url]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


async def enqueue_each(count: int) -> None:
    for _ in range(count):
        await nothing.enqueue("x" * 100)


async def rate(count: int, work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return count / (time.perf_counter() - began)


Case = Callable[[], Awaitable[float]]


async def measure(bench: Bench, options: argparse.Namespace) -> dict[str, float]:
    cases: dict[str, Case] = {
        "drain": bench.drain,
        "drain 2": partial(bench.drain, processes=2),
        "drain 4k": partial(bench.drain, size=4096, share=0.5),
        "drain results": partial(bench.drain, number),
        "naps": bench.naps,
        "one": bench.one,
        "hundred": bench.hundred,
        "many": bench.many,
    }
    swept: dict[str, Case] = {
        "drain 4": partial(bench.drain, processes=4),
        "drain 1k": partial(bench.drain, size=1024),
        "drain 16k": partial(bench.drain, size=16_384, share=0.25),
    }
    swept |= {f"prefetch {n}": partial(bench.drain, prefetch=n) for n in PREFETCHES}
    names = options.only or [*cases, "wake-up", *(swept if options.sweep else ())]
    chosen = {name: case for name, case in (cases | swept).items() if name in names}
    found = {name: await case() for name, case in chosen.items()}
    if "wake-up" in names:
        found |= await bench.wakeups()
    await bench.remove_store()
    return {name: round(value, 3) for name, value in found.items()}


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="durio-speed-", dir=Path.cwd()) as name:
        figures = await measure(Bench(Path(name), options), options)
    print(json.dumps({"package": PACKAGE, "figures": figures}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", help="a PostgreSQL URL; default: SQLite files here")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--wakeups", type=int, default=300)
    parser.add_argument("--only", action="append", default=[], help="a case")
    parser.add_argument("--sweep", action="store_true", help="the second table too")
    asyncio.run(main(parser.parse_args()))
