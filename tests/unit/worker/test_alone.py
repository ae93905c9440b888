"""The last chance runs alone; unknown tasks are parked; a stop gives everything back."""

import asyncio
from contextlib import suppress

import pytest

from durio import App, HookEvent, State
from durio.app.worker_builder import make_worker
from durio.model.ids import id_bytes
from durio.model.names import lane
from durio.ports.control import AuditNote, QueueChange
from durio.ports.exchange import Lane
from durio.ports.lease import WorkerInfo
from durio.ports.upkeep import OneWorker
from tests.simulation.fake_machine import FakeMachine, TaskSideLoop
from tests.unit.app.app_harness import drained, finished, in_state, virtual, working


async def lose(app: App, job_id: str, times: int, queue: str = "default") -> None:
    """Workers claim the job and die with it, so many times."""
    store = await app.store()
    for _ in range(times):
        info = WorkerInfo(app.name, "x/1", "x", 1, (), 1, "0", {})
        worker = await store.register(info, 30)
        answer = await store.exchange(worker, [], [Lane(lane(app.name, queue), 1)], 1)
        assert [claim.id for claim in answer.claims] == [id_bytes(job_id)]
        await store.rescue(10, OneWorker(worker))


@virtual
async def test_a_job_that_lost_two_workers_runs_alone(app: App) -> None:
    at_once: set[str] = set()
    seen: dict[str, set[str]] = {}

    @app.task(name="work")
    async def work(name: str) -> None:
        at_once.add(name)
        for other in at_once:
            seen.setdefault(other, set()).update(at_once)
        await app.clock.sleep(1)
        at_once.discard(name)

    suspect = await work.enqueue("suspect")
    await lose(app, suspect.id, times=2)
    others = await work.enqueue_many([(f"n{n}",) for n in range(12)])
    async with working(app):
        for job in (suspect, *others):
            assert (await finished(job)).state is State.DONE
    assert seen["suspect"] == {"suspect"}
    assert any(len(together) > 1 for together in seen.values()), (
        "others share the slots"
    )
    assert (await suspect.status()).attempt == 3


@virtual
async def test_it_waits_until_what_runs_has_ended(app: App) -> None:
    order: list[str] = []

    @app.task(name="work")
    async def work(name: str, seconds: float) -> None:
        order.append(f"{name} starts")
        await app.clock.sleep(seconds)
        order.append(f"{name} ends")

    suspect = await work.options(queue="aside").enqueue("suspect", 1)
    await lose(app, suspect.id, times=2, queue="aside")
    store = await app.store()
    aside = lane(app.name, "aside")
    await store.set_queue(aside, QueueChange(paused=True), AuditNote(who="me"))
    async with working(app):
        slow = await work.enqueue("slow", 8)
        await in_state(slow, State.RUNNING)
        await store.set_queue(aside, QueueChange(paused=False), AuditNote(who="me"))
        await in_state(suspect, State.RUNNING)
        late = await work.enqueue("late", 1)
        await finished(late)
    assert order == [
        *("slow starts", "slow ends", "suspect starts", "suspect ends"),
        *("late starts", "late ends"),
    ]


@virtual
async def test_a_third_loss_alone_is_the_end(app: App) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    job = await work.enqueue()
    await lose(app, job.id, times=2)
    store = await app.store()
    info = WorkerInfo(app.name, "x/1", "x", 1, (), 1, "0", {})
    worker = await store.register(info, 30)
    claims = (await store.exchange(worker, [], [Lane("app:default", 1)], 1)).claims
    assert claims[0].lost == 2
    # Claimed, but its mark was never written: it goes back, uncharged.
    await store.rescue(10, OneWorker(worker))
    status = await job.status()
    assert (status.state, status.attempt) == (State.READY, 3)


@pytest.mark.proves("M110")
@virtual
async def test_an_unknown_task_is_parked_and_later_run(app: App) -> None:
    @app.task(name="new")
    async def new() -> str:
        return "ran"

    job = await new.enqueue()
    handler = app.registry.by_name.pop("app.new")
    async with working(app):
        parked = await in_state(job, State.SCHEDULED)
        await app.clock.sleep(600)
        assert not (await job.status()).state.is_final, "it waits for a newer worker"
    assert parked.attempt == 1
    app.registry.by_name["app.new"] = handler
    async with working(app):
        assert await job.result(600) == "ran"
    assert (await job.status()).attempt == 1


@virtual
async def test_a_task_unknown_for_a_day_is_dead(app: App) -> None:
    @app.task(name="gone")
    async def gone() -> None: ...

    job = await gone.enqueue()
    later = await gone.options(delay="60h").enqueue()
    app.registry.by_name.clear()
    await app.clock.sleep(48 * 3600)
    await drained(app)
    assert (await job.status()).state is State.SCHEDULED, "met for the first time"
    await app.clock.sleep(25 * 3600)
    await drained(app)
    status = await job.status()
    assert (status.state, status.reason) == (State.DEAD, "unknown_task")
    assert status.last_error is not None
    assert "app.gone" in status.last_error.message
    # Its day begins when the first worker did not know it.
    assert (await later.status()).state is State.SCHEDULED


@pytest.mark.proves("M118")
@virtual(settings={"worker": {"grace_seconds": 5, "concurrency": 2}})
async def test_a_stop_gives_back_what_does_not_end_in_time(app: App) -> None:
    tidied: list[str] = []

    @app.task(name="work")
    async def work(seconds: float) -> float:
        try:
            await app.clock.sleep(seconds)
        finally:
            tidied.append(f"{seconds:g}")
        return seconds

    jobs = await work.enqueue_many([(3,), (60,), (1,), (1,)])
    async with working(app) as worker:
        await in_state(jobs[1], State.RUNNING)
    assert worker.was_cut_short
    states = [(await job.status()).state for job in jobs]
    assert states == [State.DONE, State.READY, State.READY, State.READY]
    assert {(await job.status()).attempt for job in jobs} == {1}, "nothing is charged"
    assert tidied == ["3", "60"], "the cancelled one cleaned up"


@virtual(settings={"worker": {"abandoned_max": 2}})
async def test_too_much_hanging_code_ends_the_worker(app: App) -> None:
    """Whoever starts it anew gets a process without it; nobody waits for nothing."""
    rope: list[bool] = []

    @app.task(name="hang", timeout=(1, 2), retry=0)
    async def hang() -> None:
        while not rope:
            with suppress(asyncio.CancelledError):
                await app.clock.sleep(1)

    await hang.enqueue_many([(), ()])
    waits = await hang.options(delay="10s").enqueue()
    worker = await make_worker(app, side_loop=TaskSideLoop(), machine=FakeMachine())
    await worker.run()
    does_hang = worker.hangs
    rope.append(True)
    assert does_hang
    assert worker.broken is not None
    assert "2 still run" in worker.broken.what
    assert (await waits.status()).state is State.SCHEDULED


@virtual(settings={"worker": {"abandoned_max": 2, "concurrency": 5}})
async def test_who_cleans_up_after_a_fence_does_not_hang(app: App) -> None:
    """Many jobs at once are lost with a lease: they need a moment, and the worker lives."""
    ended: list[int] = []

    @app.task(name="work")
    async def work(n: int) -> None:
        try:
            await app.clock.sleep(30)
        finally:
            await app.clock.sleep(3)
            ended.append(n)

    jobs = await work.enqueue_many([(n,) for n in range(5)])
    async with working(app) as worker:
        for job in jobs:
            await in_state(job, State.RUNNING)
        await worker.store.leave(worker.identity.id)  # somebody took it for dead
        while len(ended) < 10:
            await app.clock.sleep(1)
        assert worker.broken is None


@virtual(settings={"worker": {"abandoned_max": 3, "concurrency": 5}})
async def test_one_that_hangs_beside_others_that_clean_up_is_one(app: App) -> None:
    rope: list[bool] = []

    @app.task(name="hang", timeout=(1, 2), retry=0)
    async def hang() -> None:
        while not rope:
            with suppress(asyncio.CancelledError):
                await app.clock.sleep(1)

    @app.task(name="work")
    async def work() -> None:
        try:
            await app.clock.sleep(300)
        finally:
            await app.clock.sleep(4)

    jobs = [await work.enqueue() for _ in range(3)]
    async with working(app) as worker:
        for job in jobs:
            await in_state(job, State.RUNNING)
        hanging = await hang.enqueue()
        await finished(hanging)
        await app.clock.sleep(2)
        await worker.store.leave(worker.identity.id)  # somebody took it for dead
        await app.clock.sleep(4)
        assert worker.broken is None
        rope.append(True)


@virtual
async def test_blocks_may_be_nested(app: App) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        job = await work.enqueue()
    assert (await job.status()).state is State.READY, "the outer block keeps it open"


class Odd(BaseException):
    """Neither an Exception nor anything of Python's own."""


@virtual
async def test_a_hook_may_raise_anything(app: App) -> None:
    told: list[str] = []

    @app.task(name="work")
    async def work() -> str:
        return "done"

    @app.hooks.after
    def fails(event: HookEvent) -> None:
        raise Odd(event.job_id)

    @app.hooks.after
    def hears(event: HookEvent) -> None:
        told.append(event.job_id)

    async with working(app):
        jobs = [await work.enqueue(), await work.enqueue()]
        assert [await job.result(60) for job in jobs] == ["done", "done"]
    assert sorted(told) == sorted(job.id for job in jobs)
