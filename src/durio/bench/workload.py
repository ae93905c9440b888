"""The bench's App: jobs that do nothing, and a worker that reports its costs.

Workers load it as `durio.bench.workload:app`. If the environment names a file, a worker
writes its CPU time from ready to drained, and its memory after that, to the file. The jobs
contain only what an ordinary job contains.
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
    """Costs of a worker that has drained its queue."""

    cpu_seconds: float  # user and system, all threads, from ready to drained
    rss_bytes: int


class CpuReading(msgspec.Struct, frozen=True):
    at: float  # monotonic; all processes of a host share this clock
    cpu_seconds: float


@asynccontextmanager
async def report_costs() -> AsyncGenerator[None]:
    """Measure from ready to drained: entered at the start of the worker, left at its end."""
    before = own_cpu_seconds()
    yield
    path = os.environ.get(REPORT_VARIABLE)
    if path is not None:
        write_report(path, DrainReport(own_cpu_seconds() - before, own_rss_bytes()))


def write_report(path: str, report: DrainReport) -> None:
    Path(path).write_bytes(msgspec.json.encode(report))


app = App(name=NAMESPACE, deps=report_costs)


@app.task
async def nothing(number: int) -> int:
    """Return the argument."""
    return number


@app.task
async def count(numbers: list[int]) -> int:
    """Return how many results a chord has."""
    return len(numbers)


@app.task
async def now() -> float:
    """Return when the task began, by the clock that all processes of this host share."""
    return clock.monotonic()


@app.task
async def vitals() -> CpuReading:
    """Return the CPU time of this worker so far."""
    return CpuReading(clock.monotonic(), own_cpu_seconds())
