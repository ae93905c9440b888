"""The bench's App: jobs that do nothing, and a worker that says what it cost.

Workers load it as `durio.bench.workload:app`. With a file named by environment, a worker notes
its CPU time from ready to drained, and its memory after that; the jobs themselves carry
nothing that an ordinary job would not.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from durio import App
from durio.host.clock import HostClock
from durio.host.processes import own_cpu_seconds, own_rss_bytes

REPORT_VARIABLE = "DURIO_BENCH_REPORT"
APP_PATH = "durio.bench.workload:app"
NAMESPACE = "bench"

clock = HostClock()


class DrainReport(msgspec.Struct, frozen=True):
    """What a worker says about itself when it has drained."""

    cpu_seconds: float  # user and system, all threads, from ready to drained
    rss_bytes: int


class CpuReading(msgspec.Struct, frozen=True):
    """A running worker at one moment."""

    at: float  # monotonic, common to all processes
    cpu_seconds: float


@asynccontextmanager
async def report_costs() -> AsyncGenerator[None]:
    """The worker's resources: none, but entered when ready and left when drained."""
    before = own_cpu_seconds()
    yield
    path = os.environ.get(REPORT_VARIABLE)
    if path is not None:
        write_report(path, DrainReport(own_cpu_seconds() - before, own_rss_bytes()))


def write_report(path: str, report: DrainReport) -> None:
    """For whoever started this worker."""
    Path(path).write_bytes(msgspec.json.encode(report))


app = App(name=NAMESPACE, deps=report_costs)


@app.task
async def nothing(number: int) -> int:
    """Give back what came."""
    return number


@app.task
async def now() -> float:
    """When the task began, by the clock that all processes share."""
    return clock.monotonic()


@app.task
async def vitals() -> CpuReading:
    """How this worker is."""
    return CpuReading(clock.monotonic(), own_cpu_seconds())
