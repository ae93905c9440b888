"""Plans per second, which `durio bench --scenario plans` measures.

100 callers enqueue for some seconds while one worker runs what they enqueue: first plain
jobs, then chains of 3, then chords of 10, in the same store. Each caller waits for the
result of every 20th, so that producer and worker keep the same rate. The time until the
last one has ended counts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from durio import chain, chord
from durio.bench import workload
from durio.bench.measure import (
    CALLERS,
    POLL_SECONDS,
    READY_SECONDS_MAX,
    Benchmark,
    WorkerFailed,
)
from durio.host.processes import own_cpu_seconds
from durio.model.plan_names import ended_log
from durio.ports.plan_reader import read_position

SECONDS = 5.0  # for each of the three
AHEAD = 20  # jobs or plans that one caller enqueues before it waits for a result
MEMBERS = 10  # of a chord
ENDED_LOG = ended_log(workload.NAMESPACE)  # one entry for each plan that is done

Enqueue = Callable[[int], Awaitable[Any]]


async def enqueue_chain(number: int) -> Any:
    one = workload.nothing
    return await chain(one.s(number), one.s(), one.s()).enqueue()


async def enqueue_chord(number: int) -> Any:
    members = [workload.nothing.si(number + n) for n in range(MEMBERS)]
    return await chord(members, workload.count.s()).enqueue()


# What is measured, its number of jobs, and how it is enqueued.
KINDS: dict[str, tuple[int, Enqueue]] = {
    "jobs": (1, workload.nothing.enqueue),
    "chains": (3, enqueue_chain),
    "chords": (MEMBERS + 1, enqueue_chord),
}


@dataclass(slots=True)
class PlansBenchmark(Benchmark):
    """Measures plain jobs, chains and chords, each with producer and worker at work."""

    seconds: float = SECONDS

    async def run(self) -> dict[str, Any]:
        figures: dict[str, Any] = {"scenario": "plans", "seconds": self.seconds}
        with self.children:
            worker = self.start_worker(await self.open_new_store())
            await (await workload.now.enqueue()).result(READY_SECONDS_MAX)
            for kind in KINDS:
                self.show_progress(f"{kind} for {self.seconds:g} s")
                figures |= await self.sustain(kind)
            worker.terminate()
            if await self.wait_for_exit(worker) != 0:
                raise WorkerFailed(f"the worker did not stop cleanly:\n{worker.tail()}")
            facts = await self.target.engine_facts()
        return {**figures, **self.conditions(), **facts}

    @staticmethod
    def steps(passes: int) -> int:
        """Return how often `show_progress` is called; there is one pass."""
        return len(KINDS) * passes

    async def sustain(self, kind: str) -> dict[str, Any]:
        """Enqueue until the time is over, and wait for all; return the figures by name."""
        jobs, enqueue = KINDS[kind]
        ended_before = await self.ended_plans()
        before, client_cpu = await self.worker_cpu(), own_cpu_seconds()
        began = self.clock.monotonic()
        until = began + self.seconds
        async with asyncio.TaskGroup() as group:
            callers = [
                group.create_task(self.call(enqueue, until)) for _ in range(CALLERS)
            ]
            await self.clock.sleep(self.seconds)
            unmarked = await self.unmarked_plans()
        count = sum(caller.result() for caller in callers)
        took = self.clock.monotonic() - began
        client_cpu = own_cpu_seconds() - client_cpu
        cpu = await self.worker_cpu() - before
        figures: dict[str, Any] = {
            f"{kind}_per_s": round(count / took),
            f"{kind}_cpu_us": {
                "worker": round(cpu / count * 1e6, 1),
                "client": round(client_cpu / count * 1e6, 1),
            },
        }
        if jobs > 1:
            await self.wait_for_ends(ended_before + count)
            figures[f"{kind}_unmarked"] = unmarked
        return figures

    async def call(self, enqueue: Enqueue, until: float) -> int:
        """Enqueue until this time; return how many, after the last one has ended."""
        count = 0
        while True:
            handle = await enqueue(count)
            count += 1
            is_last = self.clock.monotonic() >= until
            if is_last or count % AHEAD == 0:
                await handle.result(READY_SECONDS_MAX)
            if is_last:
                return count

    async def worker_cpu(self) -> float:
        reading = await (await workload.vitals.enqueue()).result(READY_SECONDS_MAX)
        return reading.cpu_seconds

    # --- plans in the store

    async def ended_plans(self) -> int:
        store = await workload.app.store()
        return (await store.log_lengths([ENDED_LOG])).get(ENDED_LOG, 0)

    async def unmarked_plans(self) -> int:
        """Return how many plans have ended whose records do not say so yet."""
        store = await workload.app.store()
        marked = await read_position(store, workload.NAMESPACE, ENDED_LOG)
        return await self.ended_plans() - marked.offset

    async def wait_for_ends(self, count: int) -> None:
        """Wait until so many plans have ended; raises WorkerFailed after 30 s."""
        deadline = self.clock.monotonic() + READY_SECONDS_MAX
        while (ended := await self.ended_plans()) != count:
            if self.clock.monotonic() > deadline:
                raise WorkerFailed(f"{ended} of {count} plans have ended")
            await self.clock.sleep(POLL_SECONDS)
