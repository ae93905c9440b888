"""CPU time per job, which `durio bench --cpu` measures.

Rates change with the disk and with what else runs on the machine; CPU time per job changes
much less, so it can compare two versions of the code. Each pass uses a new store. Of every
figure, the lowest of all passes counts.

`benchmarks/cpu_per_job.py` makes the same measurement through the public API alone, so that
it can also measure an older checkout. Keep the two consistent.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from durio.bench import workload
from durio.bench.measure import CALLERS, READY_SECONDS_MAX, TOGETHER_MAX, Benchmark
from durio.bench.server_cpu import server_cpu_seconds
from durio.host.processes import own_cpu_seconds

CPU_PASSES = 4


class CpuCost(NamedTuple):
    """CPU seconds of one measurement."""

    own: float  # of the worker, or of the process that enqueues
    server: float | None  # None: no server on this host


class CpuPass(NamedTuple):
    """CPU time of one pass, in microseconds per job."""

    many: CpuCost
    concurrent: CpuCost
    drain: CpuCost


@dataclass(slots=True)
class CpuBenchmark(Benchmark):
    """Measures CPU time per job and wake-ups, and nothing else."""

    postmaster: int | None = None

    async def run(self) -> dict[str, Any]:
        self.postmaster = await self.target.postmaster()
        with self.children:
            passes = [await self.measure_cpu(n) for n in range(1, self.passes + 1)]
            facts = await self.target.engine_facts()
            latency = await self.measure_wakeups_of_new_worker()
        return {
            "jobs": self.jobs,
            "cpu_us_per_job": {
                "drain": lowest("worker", (one.drain for one in passes)),
                "enqueue_many": lowest("client", (one.many for one in passes)),
                "enqueue_concurrent": lowest(
                    "client", (one.concurrent for one in passes)
                ),
            },
            **latency,
            **self.conditions(),
            **facts,
        }

    @staticmethod
    def steps(passes: int) -> int:
        return 3 * passes + 1

    async def measure_cpu(self, number: int) -> CpuPass:
        """Enqueue in both ways, then let one worker drain all jobs of the pass."""
        url = await self.open_new_store()
        share = max(1, min(self.jobs, TOGETHER_MAX) // CALLERS)
        self.show_progress(f"pass {number}: enqueue one by one, {CALLERS} callers")
        callers = (self.enqueue_each(share) for _ in range(CALLERS))
        concurrent = await self.cost(share * CALLERS, asyncio.gather(*callers))
        self.show_progress(f"pass {number}: enqueue {self.jobs} at once")
        rows = [(n,) for n in range(self.jobs)]
        many = await self.cost(self.jobs, workload.nothing.enqueue_many(rows))
        self.show_progress(f"pass {number}: one worker drains them")
        total = share * CALLERS + self.jobs
        before = self.server_seconds()
        report = await self.drain(url)
        spent = CpuCost(report.cpu_seconds, difference(before, self.server_seconds()))
        # Not earlier, because the server's work for this check must not count.
        await self.finished_jobs(total)
        return CpuPass(many, concurrent, per_job(spent, total))

    async def measure_wakeups_of_new_worker(self) -> dict[str, Any]:
        """Start a worker on the last store, which is empty, and wake it."""
        worker = self.start_worker(workload.app.url)
        await (await workload.now.enqueue()).result(READY_SECONDS_MAX)
        return await self.measure_wakeups(worker)

    async def cost(self, count: int, work: Awaitable[Any]) -> CpuCost:
        """Measure CPU time of this process and of the server, in microseconds per job."""
        server_before = self.server_seconds()
        before = own_cpu_seconds()
        await work
        own = own_cpu_seconds() - before
        spent = CpuCost(own, difference(server_before, self.server_seconds()))
        return per_job(spent, count)

    def server_seconds(self) -> float | None:
        return None if self.postmaster is None else server_cpu_seconds(self.postmaster)


def difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def per_job(spent: CpuCost, jobs: int) -> CpuCost:
    server = None if spent.server is None else spent.server / jobs * 1e6
    return CpuCost(spent.own / jobs * 1e6, server)


def lowest(process: str, costs: Iterable[CpuCost]) -> dict[str, float | None]:
    """Return the lowest cost of the named process, and the lowest of the server."""
    found = list(costs)
    servers = [cost.server for cost in found if cost.server is not None]
    return {
        process: round(min(cost.own for cost in found), 2),
        "server": round(min(servers), 2) if servers else None,
    }
