"""CPU time per job of the `durio` package that Python imports, through its public API alone.

Measures what `durio bench --cpu --json` measures and prints the same JSON keys. It uses only
`App`, `enqueue`, `enqueue_many`, `durio worker` and `durio migrate`, so it also runs against
an older checkout that has no `--cpu`:

    cd /tmp && PYTHONPATH=/path/to/old/src python /path/to/new/benchmarks/cpu_per_job.py

Run it in another directory than a checkout: the current directory comes before PYTHONPATH
for the worker, and a `durio` in it would be measured instead. The key "package" of the answer
says which package was measured.

One pass makes a new store, enqueues jobs from 100 concurrent callers, enqueues `--jobs` more
with `enqueue_many`, and starts one worker that drains them all and ends. Of every figure the
lowest of all passes counts. All times are user + system time:

- worker: the worker process, from ready to drained.
- client: the process that enqueues, during the enqueue.
- server: the process `--server-pid` (a postmaster) and its children, during the enqueue, or
  from the start of the worker to its end; null without that option. The time of ended
  backends is counted in ticks of 10 ms, so a drain should take a second or more.

On PostgreSQL (`--store postgresql://...`) each pass makes a schema and drops it again. A run
fails when the worker did not run every job exactly once.

`src/durio/bench/cpu.py` and `server_cpu.py` do the same inside the package. The code that reads
/proc and the steps of a pass are repeated here, because the package must not import from
`benchmarks/` and an older package does not have them. Keep the two in step.
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
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import durio
from durio import App

FOLDER = Path(__file__).resolve().parent
PACKAGE = str(Path(durio.__file__).resolve().parent)
REPORT_VARIABLE = "CPU_PER_JOB_REPORT"
CALLERS, CONCURRENT_MAX = 100, 10_000
PAUSE_SECONDS = 0.02  # between two wake-ups: the worker is idle again
WAIT_SECONDS = 600.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

Cost = tuple[float, float | None]  # of this process or the worker, of the server

runs = 0  # of `nothing`, in this process


@asynccontextmanager
async def report_costs() -> AsyncGenerator[None]:
    """Entered when the worker is ready, left when it has drained."""
    before = time.process_time()
    yield
    write_report(time.process_time() - before)


def write_report(cpu_seconds: float) -> None:
    if path := os.environ.get(REPORT_VARIABLE):
        Path(path).write_text(json.dumps({"cpu_seconds": cpu_seconds, "runs": runs}))


app = App(name="cpu_per_job", deps=report_costs)


# The names are explicit: this file is `__main__` here and `cpu_per_job` in the worker.
@app.task(name="nothing")
async def nothing(number: int) -> int:
    """Return the argument."""
    global runs  # noqa: PLW0603 - the report must say how many jobs ran
    runs += 1
    return number


@app.task(name="now")
async def now() -> float:
    """When the task began, by the clock that all processes of this host share."""
    return time.monotonic()


# --- stores


class Stores:
    """Makes one new store after another, and removes each."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self.folder = folder
        self.url = url
        self.made = 0

    async def make(self) -> None:
        """Open the App on another new store."""
        await self.remove()
        self.made += 1
        if self.url is None:
            app.url = f"sqlite:///{self.folder / f'{self.made}.db'}"
        else:
            separator = "&" if "?" in self.url else "?"
            app.url = f"{self.url}{separator}schema={self.schema}"
            self.migrate(app.url)
        await app.store()

    def migrate(self, url: str) -> None:
        command = [sys.executable, "-m", "durio", "migrate", "--store", url]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603

    async def remove(self) -> None:
        """Close the App; drop its schema."""
        await app.close()
        if self.url is not None and self.made:
            import asyncpg  # noqa: PLC0415 - for PostgreSQL only

            connection = await asyncpg.connect(self.url)
            await connection.execute(f"drop schema if exists {self.schema} cascade")
            await connection.close()

    @property
    def schema(self) -> str:
        return f"cpu_{os.getpid()}_{self.made}"


# --- the measurement


class Measurement:
    """Passes over new stores, then wake-ups on the last one."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.options = options
        self.stores = Stores(folder, options.store)
        self.workers: list[subprocess.Popen[bytes]] = []

    async def run(self) -> dict[str, Any]:
        try:
            passes = [await self.measure_pass() for _ in range(self.options.passes)]
            latency = await self.measure_wakeups()
        finally:
            for worker in self.workers:
                worker.kill()  # does nothing to one that has ended
            await self.stores.remove()
        many, concurrent, drain = zip(*passes, strict=True)
        return {
            "package": PACKAGE,
            "jobs": self.options.jobs,
            "passes": self.options.passes,
            "cpu_us_per_job": {
                "drain": lowest("worker", drain),
                "enqueue_many": lowest("client", many),
                "enqueue_concurrent": lowest("client", concurrent),
            },
            "latency_ms": latency,
        }

    async def measure_pass(self) -> tuple[Cost, Cost, Cost]:
        await self.stores.make()
        jobs = self.options.jobs
        share = max(1, min(jobs, CONCURRENT_MAX) // CALLERS)
        callers = (enqueue_each(share) for _ in range(CALLERS))
        concurrent = await self.cost(share * CALLERS, asyncio.gather(*callers))
        rows = [(number,) for number in range(jobs)]
        many = await self.cost(jobs, nothing.enqueue_many(rows))
        drain = await self.drain(share * CALLERS + jobs)
        return many, concurrent, drain

    async def cost(self, count: int, work: Awaitable[Any]) -> Cost:
        server_before = self.server_seconds()
        before = time.process_time()
        await work
        own = time.process_time() - before
        return per_job(own, server_before, self.server_seconds(), count)

    async def drain(self, count: int) -> Cost:
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        before = self.server_seconds()
        worker = self.start_worker("--burst", report=report)
        await self.wait_for_exit(worker)
        after = self.server_seconds()
        written = json.loads(report.read_text())
        if written["runs"] != count:
            sys.exit(f"{count} jobs, {written['runs']} runs: jobs were lost or doubled")
        return per_job(written["cpu_seconds"], before, after, count)

    async def measure_wakeups(self) -> dict[str, float]:
        """From the return of `enqueue` here to the start of the task in the worker."""
        worker = self.start_worker()
        await (await now.enqueue()).result(WAIT_SECONDS)
        returned, jobs = [], []
        for _ in range(self.options.wakeups):
            jobs.append(await now.enqueue())
            returned.append(time.monotonic())
            await asyncio.sleep(PAUSE_SECONDS)
        began = [await job.result(WAIT_SECONDS) for job in jobs]
        worker.terminate()
        await self.wait_for_exit(worker)
        waits = [1000 * (b - a) for a, b in zip(returned, began, strict=True)]
        return {"p50": round(statistics.median(waits), 3)}

    def start_worker(
        self, *flags: str, report: Path | None = None
    ) -> "subprocess.Popen[bytes]":
        path = os.environ.get("PYTHONPATH")
        environ = {
            **os.environ,
            "DURIO_URL": app.url,
            "PYTHONPATH": os.pathsep.join([*([path] if path else []), str(FOLDER)]),
        }
        if report is not None:
            environ[REPORT_VARIABLE] = str(report)
        command = [sys.executable, "-m", "durio", "worker", "cpu_per_job:app", *flags]
        with (self.folder / "worker.log").open("ab") as log:
            worker = subprocess.Popen(  # noqa: S603 - our own program
                command, env=environ, cwd=self.folder, stdout=log, stderr=log
            )
        self.workers.append(worker)
        return worker

    async def wait_for_exit(self, worker: "subprocess.Popen[bytes]") -> None:
        code = await asyncio.to_thread(worker.wait, WAIT_SECONDS)
        if code != 0:
            log = (self.folder / "worker.log").read_text(errors="replace")
            sys.exit(f"the worker ended with {code}:\n{log[-2000:]}")

    def server_seconds(self) -> float | None:
        pid = self.options.server_pid
        return None if pid is None else server_cpu_seconds(pid)


async def enqueue_each(count: int) -> None:
    for number in range(count):
        await nothing.enqueue(number)


def per_job(own: float, before: float | None, after: float | None, count: int) -> Cost:
    server = None if before is None or after is None else after - before
    return own / count * 1e6, None if server is None else server / count * 1e6


def lowest(process: str, costs: tuple[Cost, ...]) -> dict[str, float | None]:
    servers = [server for _own, server in costs if server is not None]
    return {
        process: round(min(own for own, _server in costs), 2),
        "server": round(min(servers), 2) if servers else None,
    }


# --- CPU time of a server


def server_cpu_seconds(postmaster: int) -> float:
    """The server so far: the kernel adds the time of ended children to their parent."""
    ended = sum(map(int, stat_fields(postmaster)[13:15])) / TICKS_PER_SECOND
    return ended + sum(map(run_seconds, [postmaster, *children_of(postmaster)]))


def children_of(parent: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int(stat_fields(int(entry.name))[1]) == parent:
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended since the folder was listed
    return found


def run_seconds(pid: int) -> float:
    """User and system time of a process with one thread; 0 when it has just ended."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the program's name."""
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="durio-cpu-", dir=Path.cwd()) as name:
        figures = await Measurement(Path(name), options).run()
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", help="a PostgreSQL URL; default: SQLite files here")
    parser.add_argument("--server-pid", type=int, help="the postmaster, on this host")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--wakeups", type=int, default=300)
    asyncio.run(main(parser.parse_args()))
