"""Batches while things go wrong: replies that are lost, and a lost lease."""

from typing import Any

import pytest

from durio import App, Job, State
from durio.limits import Batch
from tests.unit.app.app_harness import in_state, virtual, working
from tests.unit.worker.test_lost_replies import faulty_store

pytestmark = pytest.mark.slow  # real processes, servers or seconds

BRISK = {
    "worker": {
        "poll_seconds": 1,
        "lease_seconds": 30,
        "heartbeat_seconds": 5,
        "concurrency": 1,
    }
}


def holding(app: App, batch: Batch, seconds: float) -> tuple[Any, list[list[int]]]:
    """Return a task that takes its time, and the items of its calls."""
    calls: list[list[int]] = []

    @app.task(name="hold", batch=batch)
    async def hold(items: list[int]) -> list[int]:
        calls.append(list(items))
        await app.clock.sleep(seconds)
        return [2 * item for item in items]

    return hold, calls


async def results_of(jobs: list[Job[int]]) -> list[int]:
    return [await job.result(60) for job in jobs]


@virtual(settings=BRISK)
async def test_claims_of_a_lost_reply_join_the_batch(app: App):
    hold, calls = holding(app, Batch(8, "20s"), 1)
    faulty = await faulty_store(app)
    async with working(app) as worker:
        first = await hold.enqueue(0)
        await in_state(first, State.RUNNING)
        faulty.lose_reply("exchange")
        jobs = [first, *(await hold.enqueue_many([(n,) for n in range(1, 6)]))]
        assert await results_of(jobs) == [0, 2, 4, 6, 8, 10]
        assert worker.slots.capacity == worker.slots.concurrency
    assert calls == [[0, 1, 2, 3, 4, 5]]


@virtual(settings=BRISK)
async def test_outcomes_of_a_call_are_sent_again(app: App):
    hold, calls = holding(app, Batch(8, "1s"), 5)
    faulty = await faulty_store(app)
    async with working(app):
        jobs = await hold.enqueue_many([(n,) for n in range(3)])
        await app.clock.sleep(3)
        faulty.fail("exchange", times=2)
        assert await results_of(jobs) == [0, 2, 4]
    assert calls == [[0, 1, 2]]
    assert {(await job.status()).attempt for job in jobs} == {1}


@pytest.mark.parametrize("seconds", [1.0, 20.0], ids=["gathered", "in a call"])
def test_a_lost_lease_forgets_batches(seconds: float):
    @virtual(settings=BRISK)
    async def test(app: App):
        hold, calls = holding(app, Batch(8, "10s"), 60)
        async with working(app) as worker:
            jobs = await hold.enqueue_many([(n,) for n in range(3)])
            await app.clock.sleep(seconds)
            slots = worker.slots
            assert len(slots.running) == len(jobs)
            slots.drop_all()
            assert (slots.capacity, slots.batches.open) == (1, {})
            await app.clock.sleep(100)
            assert len(calls) == (seconds > 10)
            assert slots.capacity == 1

    test()


@virtual(settings=BRISK)
async def test_a_slow_search_that_finds_too_little_pauses(app: App):
    hold, _ = holding(app, Batch(8, "50s"), 1)
    async with working(app) as worker:
        await in_state(await hold.enqueue(0), State.RUNNING)
        batches = worker.slots.batches
        batches.apply_fill(7, 2, 0.01)  # quick
        batches.apply_fill(7, 7, 0.5)  # slow, and successful
        assert batches.room == 7
        batches.apply_fill(7, 2, 0.5)
        assert batches.room == 0
        await app.clock.sleep(9.9)
        assert batches.room == 0
        await app.clock.sleep(0.2)
        assert batches.room == 7
