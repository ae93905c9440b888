"""What a store promises as a whole: wakeups, and results on every calling loop."""

import asyncio
from collections.abc import Awaitable

from durio.model.effects import Effects
from durio.model.job import CANCELLED, DONE, READY
from durio.ports.browse import Query
from durio.ports.commit import Committed
from durio.ports.control import AuditNote, CancelJobs, QueueChange
from durio.ports.exchange import Lane
from durio.ports.store import Store, Wake
from durio.ports.upkeep import DeadOnThisHost, OneWorker, Orphans
from tests.conformance.promises import Chapter
from tests.conformance.scene import (
    LANE,
    LEASE_SECONDS,
    MANY,
    TASK,
    Scene,
    info,
    outcome,
)
from tests.job_counts import count_jobs

chapter = Chapter("store")

LONG_SECONDS = 50.0  # longer than any promise waits


async def woken(scene: Scene, worker: int, *, by: Awaitable[object]) -> Wake:
    """Wait while `by` runs; return the reason why the wait ended."""
    wake, _ = await asyncio.gather(scene.store.wait(worker, LONG_SECONDS), by)
    return wake


@chapter.promise("M111")
async def an_enqueue_wakes_a_worker_of_that_queue(scene: Scene) -> None:
    """This includes another process, and workers of every queue, of this one, of a glob."""
    other = await scene.other()
    for queues in (None, ("default",), ("mail", "def*")):
        worker = await scene.worker(queues=queues)
        wake = await woken(scene, worker, by=other.enqueue([scene.job()]))
        assert wake.woken
        assert wake.lanes <= {LANE}


@chapter.promise()
async def a_ring_before_the_wait_is_not_lost(scene: Scene) -> None:
    """Work that came between the exchange and the wait ends the wait at once."""
    worker = await scene.worker()
    await (await scene.other()).enqueue([scene.job()])
    assert (await scene.store.wait(worker, LONG_SECONDS)).woken


@chapter.promise()
async def a_cancel_wakes_the_owner(scene: Scene) -> None:
    """The wakeup says that it is about control, so that the worker renews now."""
    worker, claim = await scene.running()
    other = await scene.other()
    for _ in range(5):
        wake = await woken(scene, worker, by=other.act([claim.id], CancelJobs()))
        assert wake.woken
        if wake.control:
            return
    raise AssertionError("no ring was about control")


@chapter.promise()
async def a_wait_ends_when_its_time_is_over(scene: Scene) -> None:
    """This holds whether the store uses its own clock or the loop's."""
    worker = await scene.worker()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(scene.store.wait(worker, 0.05))
        while not waiting.done():
            scene.clock.advance(0.05)
            await asyncio.wait([waiting], timeout=0.01)
    assert waiting.result() == Wake(False, frozenset(), False)


@chapter.promise("M111", "M208")
async def every_method_answers_a_second_loop_while_the_first_is_blocked(
    scene: Scene,
) -> None:
    """Heartbeats and watchdogs run on their own loops, so no result may go through ours."""
    jobs = [scene.job(), scene.job()]
    worker = await scene.worker()

    async def story() -> None:
        await scene.store.enqueue(jobs)
        await work(scene.store, worker)
        await look_after(scene.store)
        await ask(scene.store, [job.id for job in jobs])

    await scene.elsewhere(story)
    # And the first loop gets its results as before.
    assert await scene.state(jobs[0].id) == DONE


async def work(store: Store, worker: int) -> None:
    """Make the calls of a worker, from its first claim to its leave."""
    await store.wait(worker, 0.01)
    exchanged = await store.exchange(worker, [], [Lane(LANE, 2)], 2)
    first, second = exchanged.claims
    assert (await store.exchange(worker, [outcome(first)], (), 0)).rejected == []
    await store.act([second.id], CancelJobs())
    renewed = await store.renew(worker, LEASE_SECONDS)
    assert renewed.cancels == [(second.id, 1)]
    assert await store.lead("upkeep", worker, 10.0) is not None
    await store.health(worker)
    await store.leave(worker)


async def look_after(store: Store) -> None:
    """Make the calls of a leader."""
    worker = await store.register(info(), LEASE_SECONDS)
    assert await store.promote(MANY) == (0, None)
    assert (await store.rescue(MANY, OneWorker(worker))).workers == [worker]
    assert (await store.rescue(MANY, DeadOnThisHost())).workers == []
    assert (await store.rescue(MANY, Orphans())).left == []
    assert await store.prune(MANY, dead_count=0) == 0
    await store.tidy()
    await store.set_queue(LANE, QueueChange(paused=True), AuditNote(who="ann"))


async def ask(store: Store, ids: list[bytes]) -> None:
    """Make all other calls."""
    assert await store.states(ids) == {ids[0]: DONE, ids[1]: CANCELLED}
    assert len(await store.get(ids)) == 2
    assert len((await store.find(Query(), limit=9, cursor=None)).jobs) == 2
    assert [row.paused for row in await store.queues("shop")] == [True]
    assert await count_jobs(store, "shop") in ({}, {LANE: {}})
    assert await store.workers(None) == []
    assert await store.list_records("task:shop") == []
    assert await store.records("task:shop", ["shop.pay"]) == []
    assert (await store.due_records("task:shop", limit=9))[:2] == ([], None)
    assert await store.commit(Effects()) == Committed([], [])
    assert (await store.health()).stalled_by is None


@chapter.promise("M208")
async def two_loops_use_one_store_at_once(scene: Scene) -> None:
    """Each gets its own results."""
    mine = [scene.job() for _ in range(20)]
    theirs = [scene.job() for _ in range(20)]

    async def story() -> list[bytes]:
        answers = await asyncio.gather(*(scene.store.enqueue([job]) for job in theirs))
        return [answer.id for (answer,) in answers]

    before = asyncio.gather(*(scene.store.enqueue([job]) for job in mine))
    assert await scene.elsewhere(story) == [job.id for job in theirs]
    answers = await before
    assert [answer.id for (answer,) in answers] == [job.id for job in mine]
    states = await scene.store.states([job.id for job in mine + theirs])
    assert set(states.values()) == {READY}
    assert len(states) == 40


@chapter.promise()
async def a_caller_that_goes_away_spoils_no_other(scene: Scene) -> None:
    """Its call may have happened or not; every other caller gets its own result."""
    jobs = [scene.job(task=f"{TASK}{n}") for n in range(30)]
    loop = asyncio.get_running_loop()
    calls = [loop.create_task(scene.store.enqueue([job])) for job in jobs]
    await asyncio.wait(calls, timeout=0)
    for call in calls[::3]:
        call.cancel()
    await asyncio.wait(calls)
    for n, (job, call) in enumerate(zip(jobs, calls, strict=True)):
        if n % 3:
            (answer,) = call.result()
            assert answer.id == job.id
    for record in await scene.records():
        assert record.task == next(job.task for job in jobs if job.id == record.id)


@chapter.promise()
async def nobody_stalls_an_idle_store(scene: Scene) -> None:
    """There is nothing to wait for."""
    await scene.add()
    for store in (scene.store, await scene.other()):
        assert (await store.health()).stalled_by is None


@chapter.promise()
async def health_without_a_worker_never_suspends(scene: Scene) -> None:
    """So it can be called without an event loop."""
    asking = scene.store.health()
    try:
        asking.send(None)
    except StopIteration:
        return
    asking.close()
    raise AssertionError("it waits")


@chapter.promise()
async def a_store_that_takes_writes_says_nothing_else(scene: Scene) -> None:
    """Then nothing says that it would refuse them."""
    assert await scene.store.write_refusal() is None
