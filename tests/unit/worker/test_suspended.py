"""A process that was suspended for longer than its lease starts nothing when it wakes up.

Another worker may have its jobs, and the worker knows that only when a renewal is answered.
Claims that have not started are given back: the store refuses that if they are lost.
"""

from collections.abc import Sequence
from typing import Any

from durio import App, Job, State
from durio.limits import Batch
from durio.model.names import lane
from durio.ports.exchange import Lane
from durio.worker.worker import Worker
from tests.unit.app.app_harness import finished, in_state, virtual, working
from tests.unit.worker.test_alone import lose
from tests.unit.worker.test_lost_replies import faulty_store

LEASE_SECONDS = 30
BRISK = {
    "worker": {
        "poll_seconds": 1,
        "lease_seconds": LEASE_SECONDS,
        "heartbeat_seconds": 5,
        "concurrency": 1,
    }
}


def suspend(worker: Worker) -> float:
    """Make the last renewal as old as after a suspend that outlasts the lease."""
    now = worker.clock.monotonic()
    worker.identity.renewed_at = now - LEASE_SECONDS - 1
    worker.slots.lease._lasts_until = now - 1
    return now


async def began_once_renewed(
    worker: Worker, jobs: Sequence[Job[Any]], starts: Sequence[tuple[float, Any]]
) -> None:
    """Check that all jobs ran, in their first attempt, after the next renewal."""
    at = worker.clock.monotonic()
    assert worker.slots.lease.is_over
    for job in jobs:
        assert (await finished(job)).attempt == 1
    assert not worker.slots.lease.is_over
    assert all(began > at + 2.5 for began, _ in starts), "no renewal came before"
    assert worker.slots.capacity == worker.slots.concurrency


@virtual(settings=BRISK)
async def test_jobs_gathered_for_a_batch_do_not_begin(app: App):
    calls: list[tuple[float, list[int]]] = []

    @app.task(name="gather", batch=Batch(8, "2s"))
    async def gather(items: list[int]) -> list[int]:
        calls.append((app.clock.monotonic(), list(items)))
        return items

    async with working(app) as worker:
        await app.clock.sleep(0.5)
        jobs = await gather.enqueue_many([(0,), (1,)])
        await in_state(jobs[1], State.RUNNING)
        suspend(worker)
        await began_once_renewed(worker, jobs, calls)
    assert [items for _, items in calls] == [[0, 1]]


@virtual(settings=BRISK)
async def test_a_claim_that_waits_for_a_slot_does_not_start(app: App):
    starts: list[tuple[float, int]] = []

    @app.task(name="work")
    async def work(n: int) -> None:
        starts.append((app.clock.monotonic(), n))
        await app.clock.sleep(0.1)

    async with working(app) as worker:
        await app.clock.sleep(0.5)
        await in_state(await work.enqueue(1), State.RUNNING)
        second, store = await work.enqueue(2), await app.store()
        claimed = Lane(lane(app.name, "default"), 1)
        answer = await store.exchange(worker.identity.id, [], [claimed], 1)
        worker.slots.add(answer.claims)
        starts.clear()
        suspend(worker)
        await began_once_renewed(worker, [second], starts)


@virtual(settings=BRISK)
async def test_a_job_that_would_run_alone_does_not_start(app: App):
    starts: list[tuple[float, None]] = []

    @app.task(name="work")
    async def work() -> None:
        starts.append((app.clock.monotonic(), None))

    job = await work.enqueue()
    await lose(app, job.id, times=2)
    (await faulty_store(app)).slow("exchange", seconds=0.2)
    async with working(app) as worker:
        while not worker.slots.awaits_mark:
            await app.clock.sleep(0.1)
        suspended_at = suspend(worker)
        await in_state(job, State.DONE)
        assert [began > suspended_at + 2.5 for began, _ in starts] == [True]
