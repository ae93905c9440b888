"""A store that will never take this worker again: it ends, and says why."""

import asyncio
import os

import pytest

from durio import App
from durio.app.embed import EmbeddedWorker
from durio.errors import (
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreReplaced,
    StoreUnavailable,
)
from tests.faults.faulty_store import ALWAYS, FaultyStore
from tests.simulation.fake_machine import FakeMachine, TaskSideLoop
from tests.unit.app.app_harness import virtual

BRISK = {"worker": {"poll_seconds": 1, "lease_seconds": 30, "heartbeat_seconds": 5}}
GONE = pytest.mark.parametrize(
    "gone",
    [
        StoreMoved("its jobs have moved", cure="Use that store."),
        StoreReplaced("the file was replaced"),
    ],
    ids=lambda gone: gone.code,
)


async def faulty_store(app: App) -> FaultyStore:
    """From now on the App speaks to its store through faults."""
    faulty = FaultyStore(await app.store(), app.clock)
    app.state.stores[os.getpid()] = faulty
    app.state.by_loop.clear()
    return faulty


def embedded_worker(app: App) -> EmbeddedWorker:
    return EmbeddedWorker(app, machine=FakeMachine(), side_loop=TaskSideLoop())


async def worked(app: App, worker: EmbeddedWorker, *, minutes: int = 1) -> None:
    """Work until something ends it."""
    async with worker, asyncio.timeout(60 * minutes):
        while True:
            await worker.drained()
            await app.clock.sleep(1)


@GONE
@virtual(settings=BRISK)
async def test_whoever_lost_its_lease_there_asks_once(app: App, gone: StoreError):
    """As after a sleep: the lease is over, and there is none to be had."""
    faulty, worker = await faulty_store(app), embedded_worker(app)

    async def lose() -> None:
        await app.clock.sleep(2)
        faulty.fail("register", times=ALWAYS, error=gone)
        await faulty.leave(worker._worker.identity.id)

    async with asyncio.TaskGroup() as group:
        group.create_task(lose())
        with pytest.raises(type(gone)) as caught:
            await worked(app, worker)
    assert caught.value is gone
    assert faulty.times("register") == 2, "at the start, and once again"


@GONE
@virtual(settings=BRISK)
async def test_whoever_is_told_by_a_claim_ends_too(app: App, gone: StoreError):
    faulty = await faulty_store(app)
    await app.enqueue("anything")  # without a job it would not ask
    faulty.fail("exchange", times=ALWAYS, error=gone)
    with pytest.raises(type(gone)) as caught:
        await worked(app, embedded_worker(app))
    assert caught.value is gone


@virtual(settings=BRISK)
async def test_a_store_that_answers_and_refuses_is_not_asked_for_ever(app: App):
    """As when the right to write was taken away: alive but deaf helps nobody."""
    faulty, worker = await faulty_store(app), embedded_worker(app)

    async def lose() -> None:
        await app.clock.sleep(2)
        faulty.fail("register", times=ALWAYS, error=StoreUnavailable("no such right"))
        await faulty.leave(worker._worker.identity.id)

    async with asyncio.TaskGroup() as group:
        group.create_task(lose())
        with pytest.raises(StoreUnavailable, match="though the store answers: no such"):
            await worked(app, worker, minutes=3)


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable("away"), StoreFull("no space"), StoreReadOnly("a replica")],
    ids=lambda error: error.code,
)
@virtual(settings=BRISK)
async def test_a_store_that_takes_no_writes_is_waited_for(app: App, error: StoreError):
    faulty, worker = await faulty_store(app), embedded_worker(app)

    async def lose() -> None:
        await app.clock.sleep(2)
        faulty.fail("register", times=ALWAYS, error=error)
        if isinstance(error, StoreUnavailable):
            faulty.fail("workers", times=ALWAYS, error=error)
        await faulty.leave(worker._worker.identity.id)

    async with asyncio.TaskGroup() as group:
        group.create_task(lose())
        with pytest.raises(TimeoutError):
            await worked(app, worker, minutes=5)
