"""The bench's measurements: real worker processes with all defaults; the best pass counts.

The worker is the one that users start: `python -m durio worker`, 10 slots, results stored,
its log at INFO in a file. The rate of a drain is computed from the times in the store,
first claim to last finish, so the start of the interpreter does not count.
"""

import asyncio
import os
import platform
import shutil
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from durio.app.connect import masked, module_of
from durio.bench import workload
from durio.bench.raw_sqlite import RawRates
from durio.bench.targets import (
    BenchTarget,
    PostgresBenchTarget,
    ServerCosts,
    SqliteBenchTarget,
)
from durio.client.handle import Job
from durio.host.clock import HostClock
from durio.host.processes import Subprocess, Subprocesses, durio_command, loop_factory
from durio.model.errors import OperatingError, UsageError
from durio.model.job import DONE, FINAL, STATE_BY_CODE, StoredJob
from durio.ports.browse import Query

PASSES = 3
SINGLE_MAX, TOGETHER_MAX = 2_000, 10_000  # jobs: these ways to enqueue are slower
CALLERS = 100
WAKEUPS = 300
PAUSE_SECONDS = 0.02  # between two wake-ups; the worker is idle again by then
IDLE_SECONDS = 5.0
READY_SECONDS_MAX = 30.0
DRAIN_SECONDS_MAX = 600.0
POLL_SECONDS = 0.02
PAGE = 200
MIB = 1024 * 1024
POSTGRES = "durio.stores.postgres.store"

ShowProgress = Callable[[str], None]


class WorkerFailed(OperatingError):
    """The worker under measurement did not do its work."""

    code = "worker_failed"


@dataclass(frozen=True, slots=True)
class DrainResult:
    per_s: float
    cpu_us_per_job: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class PassResult:
    raw: RawRates
    many_per_s: float
    drain: DrainResult
    # Before, after the enqueue, after the drain; empty if there is no server.
    server_costs: list[ServerCosts]


@dataclass(slots=True)
class Benchmark:
    """All measurements of one run; `folder` holds logs and reports."""

    folder: Path
    target: BenchTarget
    jobs: int
    wakeups: int
    idle_seconds: float
    show_progress: ShowProgress
    passes: int = PASSES
    clock: HostClock = field(default_factory=HostClock)
    children: Subprocesses = field(default_factory=Subprocesses)

    async def run(self) -> dict[str, Any]:
        """Make all measurements; return the figures by name."""
        with self.children:
            passes = [await self.measure_pass(n) for n in range(1, self.passes + 1)]
            facts = await self.target.engine_facts()
            one, together = await self.measure_single_enqueues()
            idle = await self.measure_idle()
        bare = max(one.raw for one in passes)
        drains = [one.drain for one in passes]
        drain = max(drains, key=lambda one: one.per_s)
        return {
            "jobs": self.jobs,
            "enqueue_one_per_s": round(one),
            "enqueue_many_per_s": round(max(one.many_per_s for one in passes)),
            "enqueue_concurrent_per_s": round(together),
            "drain_per_s": round(drain.per_s),
            "raw_cycle_per_s": round(bare.cycle),
            "drain_vs_raw": round(drain.per_s / bare.cycle, 3),
            "raw_drain_per_s": round(bare.drain),
            "drain_vs_raw_drain": round(drain.per_s / bare.drain, 3),
            **idle,
            "cpu_us_per_job": round(min(d.cpu_us_per_job for d in drains), 1),
            "worker_rss_mb": round(max(d.rss_mb for d in drains), 1),
            **self.conditions(),
            **costs_per_job([one.server_costs for one in passes], self.jobs),
            **facts,
        }

    def conditions(self) -> dict[str, Any]:
        return {
            "passes": self.passes,
            "python": platform.python_version(),
            "loop": "asyncio" if loop_factory() is None else "uvloop",
            "cores": os.cpu_count(),
        }

    @staticmethod
    def steps(passes: int) -> int:
        """Return how often `show_progress` is called."""
        return 3 * passes + 4

    # --- stores

    async def open_new_store(self) -> str:
        """Open the App on a new store and return its URL."""
        await workload.app.close()
        workload.app.url = await self.target.new_store()
        await workload.app.store()
        return workload.app.url

    # --- rates

    async def measure_pass(self, number: int) -> PassResult:
        """Let driver and engine take turns, so that both find the same load on the machine."""
        self.show_progress(f"pass {number}: the bare driver")
        bare = await self.target.measure_raw(self.jobs)
        self.show_progress(f"pass {number}: enqueue {self.jobs} at once")
        url = await self.open_new_store()
        spent = [await self.target.server_costs()]
        await workload.app.store()  # `server_costs` may have closed it
        rows = [(n,) for n in range(self.jobs)]
        many = await self.rate(self.jobs, workload.nothing.enqueue_many(rows))
        spent.append(await self.target.server_costs())
        self.show_progress(f"pass {number}: one worker drains them")
        drain = await self.measure_drain(url)
        spent.append(await self.target.server_costs())
        return PassResult(bare, many, drain, [one for one in spent if one is not None])

    async def measure_drain(self, url: str) -> DrainResult:
        report = await self.drain(url)
        records = await self.finished_jobs(self.jobs)
        first = min(record.started_at or 0.0 for record in records)
        last = max(record.finished_at or 0.0 for record in records)
        return DrainResult(
            per_s=self.jobs / (last - first),
            cpu_us_per_job=report.cpu_seconds / self.jobs * 1e6,
            rss_mb=report.rss_bytes / MIB,
        )

    async def drain(self, url: str) -> workload.DrainReport:
        """Run a worker that ends when no job is left, and read its report."""
        path = self.folder / "report.json"
        path.unlink(missing_ok=True)
        worker = self.start_worker(url, "--burst", report=path)
        code = await self.wait_for_exit(worker)
        if code != 0 or not path.exists():
            raise WorkerFailed(f"the worker ended with {code}:\n{worker.tail()}")
        return msgspec.json.decode(path.read_bytes(), type=workload.DrainReport)

    async def finished_jobs(self, count: int) -> list[StoredJob]:
        """Return the newest `count` jobs, all of which must be done."""
        records = await self.newest(count)
        unfinished = sum(record.state != DONE for record in records)
        if unfinished or len(records) != count:
            raise WorkerFailed(f"{unfinished} of {len(records)} jobs are not done")
        return records

    async def newest(self, count: int) -> list[StoredJob]:
        """Return the last `count` jobs that were enqueued, or all if there are fewer."""
        store = await workload.app.store()
        records: list[StoredJob] = []
        cursor: str | None = None
        query = Query(namespace=workload.NAMESPACE)
        while len(records) < count:
            limit = min(PAGE, count - len(records))
            page = await store.find(query, limit=limit, cursor=cursor)
            records += page.jobs
            cursor = page.cursor
            if cursor is None:
                break
        return records

    async def measure_single_enqueues(self) -> tuple[float, float]:
        """Return jobs per second: one caller that awaits each job, 100 concurrent ones."""
        self.show_progress("enqueue one by one")
        await self.open_new_store()
        count = min(self.jobs, SINGLE_MAX)
        one = await self.rate(count, self.enqueue_each(count))
        self.show_progress(f"enqueue one by one, {CALLERS} callers")
        share = max(1, min(self.jobs, TOGETHER_MAX) // CALLERS)
        callers = (self.enqueue_each(share) for _ in range(CALLERS))
        together = await self.rate(share * CALLERS, asyncio.gather(*callers))
        return one, together

    async def enqueue_each(self, count: int) -> None:
        for number in range(count):
            await workload.nothing.enqueue(number)

    async def rate(self, count: int, work: Awaitable[Any]) -> float:
        """Return jobs per second."""
        began = self.clock.monotonic()
        await work
        return count / (self.clock.monotonic() - began)

    # --- wake-ups and idle cost

    async def measure_idle(self) -> dict[str, Any]:
        """Measure the CPU time of an idle worker, then wake it `wakeups` times."""
        worker = self.start_worker(workload.app.url)
        await self.wait_until_drained(worker)
        self.show_progress(f"one idle worker for {self.idle_seconds:g} s")
        before = await workload.vitals.enqueue()
        at_first = await before.result(READY_SECONDS_MAX)
        await self.clock.sleep(self.idle_seconds)
        after = await workload.vitals.enqueue()
        at_last = await after.result(READY_SECONDS_MAX)
        spent = at_last.cpu_seconds - at_first.cpu_seconds
        percent = 100 * spent / (at_last.at - at_first.at)
        latency = await self.measure_wakeups(worker)
        return {**latency, "idle_cpu_percent": round(percent, 2)}

    async def measure_wakeups(self, worker: Subprocess) -> dict[str, Any]:
        """Measure from `enqueue` in this process to the start of the task in the worker.

        The worker is ended afterwards.
        """
        self.show_progress(f"one worker is woken {self.wakeups} times")
        called: list[float] = []
        returned: list[float] = []
        jobs: list[Job[float]] = []
        for _ in range(self.wakeups):
            called.append(self.clock.monotonic())
            jobs.append(await workload.now.enqueue())
            returned.append(self.clock.monotonic())
            await self.clock.sleep(PAUSE_SECONDS)
        began = [await job.result(READY_SECONDS_MAX) for job in jobs]
        worker.terminate()
        if await self.wait_for_exit(worker) != 0:
            raise WorkerFailed(f"the worker did not stop cleanly:\n{worker.tail()}")
        return {
            "latency_ms": percentiles(returned, began),
            "latency_from": "the return of enqueue to the start of the task",
            "latency_from_call_ms": percentiles(called, began),
        }

    # --- the worker

    def start_worker(
        self, url: str, *flags: str, report: Path | None = None
    ) -> Subprocess:
        """Start a worker with every default on."""
        environ = {"DURIO_URL": url}
        if report is not None:
            environ[workload.REPORT_VARIABLE] = str(report)
        return self.children.start(
            [*durio_command(), "worker", workload.APP_PATH, *flags],
            log=self.folder / "worker.log",
            environ=environ,
        )

    async def wait_for_exit(self, worker: Subprocess) -> int:
        """Return the worker's exit code without blocking the loop.

        Raises WorkerFailed after 600 s.
        """
        deadline = self.clock.monotonic() + DRAIN_SECONDS_MAX
        while worker.is_running:
            if self.clock.monotonic() > deadline:
                raise WorkerFailed(f"the worker does not end:\n{worker.tail()}")
            await self.clock.sleep(POLL_SECONDS)
        return worker.wait(0) or 0

    async def wait_until_drained(self, worker: Subprocess) -> None:
        store = await workload.app.store()
        final = {code for code, state in enumerate(STATE_BY_CODE) if state in FINAL}
        while True:
            lanes = await store.queues(workload.NAMESPACE, counts=True)
            live = [s for lane in lanes for s in lane.counts if s not in final]
            if not live:
                return
            if not worker.is_running:
                raise WorkerFailed(f"the worker ended:\n{worker.tail()}")
            await self.clock.sleep(POLL_SECONDS)


def costs_per_job(passes: Sequence[Sequence[ServerCosts]], jobs: int) -> dict[str, Any]:
    """Return the server's costs per job, by name: the lowest of all passes."""
    counted = [spent for spent in passes if spent]
    if not counted:
        return {}
    found: dict[str, Any] = {}
    for column, name in enumerate(ServerCosts._fields):
        costs = [
            {
                "enqueue": (middle[column] - before[column]) / jobs,
                "drain": (after[column] - middle[column]) / jobs,
                "both": (after[column] - before[column]) / jobs,
            }
            for before, middle, after in counted
        ]
        least = min(costs, key=lambda cost: cost["both"])
        found[f"{name}_per_job"] = {
            what: round(cost, 4) for what, cost in least.items()
        }
    return found


def percentiles(begun: Sequence[float], ended: Sequence[float]) -> dict[str, float]:
    """Return the 50th, 95th and 99th percentile, in milliseconds."""
    taken = [1000 * (end - begin) for begin, end in zip(begun, ended, strict=True)]
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    return {f"p{share}": round(cuts[share - 1], 3) for share in (50, 95, 99)}


@contextmanager
def scratch_folder() -> Generator[Path]:
    """Yield a temporary folder in the current directory, whose disk is measured."""
    folder = Path(tempfile.mkdtemp(prefix="durio-bench-", dir=Path.cwd()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def target_of(folder: Path, url: str | None) -> BenchTarget:
    if url is not None and module_of(url) == POSTGRES:
        return PostgresBenchTarget(url)
    return SqliteBenchTarget(folder, url)


async def run_benchmark(
    measure: Benchmark, url: str | None, *, yes: bool
) -> dict[str, Any]:
    """Refuse a SQLite file with jobs unless `yes` is given, then measure."""
    try:
        if (
            url is not None
            and isinstance(measure.target, SqliteBenchTarget)
            and not yes
        ):
            await refuse_used_store(url)
        figures = await measure.run()
    finally:
        await workload.app.close()
        await measure.target.clean_up()
    return {"store": masked(url) if url else "sqlite (a new file here)", **figures}


async def refuse_used_store(url: str) -> None:
    """Raise UsageError if the store holds jobs, which may belong to an application."""
    await workload.app.close()
    workload.app.url = url
    page = await (await workload.app.store()).find(Query(), limit=1, cursor=None)
    if page.jobs:
        raise UsageError(
            f"{masked(url)} already holds jobs",
            cure="Name a new file, or add --yes: the bench's jobs stay in the store.",
        )
