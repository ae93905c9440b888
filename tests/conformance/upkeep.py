"""What a store promises about promoting and rescuing: limited, repeatable, fair."""

import asyncio

from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING, Claim
from durio.model.outcome import OutcomeKind, Reason
from durio.ports.control import CancelJobs
from durio.ports.exchange import Lane
from durio.ports.upkeep import DeadOnThisHost, ExpiredLeases, Orphans
from tests.conformance.promises import Chapter
from tests.conformance.scene import (
    LANE,
    LEASE_SECONDS,
    MANY,
    Scene,
    info,
    outcome,
)

chapter = Chapter("upkeep")


# --- promote


@chapter.promise("M28")
async def promoting_is_exact_and_says_what_is_next(scene: Scene) -> None:
    """It promotes due jobs of every namespace, at their time and not before."""
    assert await scene.store.promote(MANY) == (0, None)
    first = await scene.add(delay=10.0)
    second = await scene.add(delay=20.0, lane="bank:default")
    scene.clock.advance(9.75)
    assert await scene.store.promote(MANY) == (0, 0.25)
    scene.clock.advance(0.25)
    assert await scene.store.promote(MANY) == (1, 10.0)
    assert await scene.is_ready(first)
    scene.clock.advance(10.0)
    assert await scene.store.promote(MANY) == (1, None)
    assert await scene.is_ready(second)


@chapter.promise("M28")
async def promoting_is_bounded_and_takes_the_oldest_first(scene: Scene) -> None:
    """The job that was due first comes first, in whatever order they were enqueued."""
    due = {delay: await scene.add(delay=delay) for delay in (5.0, 1.0, 4.0, 2.0, 3.0)}
    scene.clock.advance(5.0)
    ready: list[float] = []
    for wanted in (2, 2, 1, 0):
        assert (await scene.store.promote(2)).count == wanted
        new = [
            d for d, job in due.items() if d not in ready and await scene.is_ready(job)
        ]
        ready += sorted(new)
    assert ready == [1.0, 2.0, 3.0, 4.0, 5.0]


@chapter.promise()
async def two_promoters_do_no_harm(scene: Scene) -> None:
    """Each due job becomes ready once."""
    await scene.add_many(40, delay=1.0)
    scene.clock.advance(1.0)
    other = await scene.other()
    answers = await asyncio.gather(
        *(store.promote(10) for store in (scene.store, other) * 4)
    )
    assert sum(answer.count for answer in answers) == 40
    worker = await scene.worker()
    assert len(await scene.claim(worker, MANY)) == 40


# --- rescue


@chapter.promise("M98", "M110")
async def a_crash_between_claim_and_finish_runs_again_once(scene: Scene) -> None:
    """It is charged as a loss, not as a retry; the next attempt has the next number."""
    worker, claim = await scene.running()
    scene.clock.advance(LEASE_SECONDS + 1)
    rescued = await (await scene.other()).rescue(MANY, ExpiredLeases())
    (left,) = rescued.left
    assert (left.id, left.state, left.worker) == (claim.id, READY, worker)
    assert (left.task, left.lane, left.reason) == (claim.task, claim.lane, None)
    assert (await scene.store.rescue(MANY, ExpiredLeases())).workers == []
    heir, again = await scene.claim_one()
    assert (again.id, again.claim_no) == (claim.id, 2)
    assert (again.retried, again.losses, again.lost) == (0, 1, 1)
    await scene.finish(heir, again, result=b"2")
    assert await scene.claim(heir) == []
    assert await scene.state(claim.id) == DONE


@chapter.promise("M110")
async def the_third_loss_in_a_row_of_a_job_alone_is_death(scene: Scene) -> None:
    """It is dead as `worker_lost`, after the mark that it ran alone."""
    job_id = await scene.add()
    for lost in range(2):
        worker, claim = await scene.claim_one()
        assert (claim.lost, claim.losses) == (lost, lost)
        await scene.finish(worker, claim, kind=OutcomeKind.ALONE)
        assert (await scene.lose(worker)).left[0].state == READY
    worker, claim = await scene.claim_one()
    assert (claim.lost, claim.claim_no) == (2, 3)
    await scene.finish(worker, claim, kind=OutcomeKind.ALONE)
    (left,) = (await scene.lose(worker)).left
    assert (left.id, left.state, left.reason) == (job_id, DEAD, Reason.WORKER_LOST)
    record = await scene.record(job_id)
    assert (record.state, record.reason) == (DEAD, Reason.WORKER_LOST)
    assert record.finished_at == scene.clock.now()


@chapter.promise("M110")
async def the_mark_is_of_one_attempt(scene: Scene) -> None:
    """After it ran alone once and was released, a loss with others does not make it dead."""
    await scene.add()
    for _ in range(2):
        worker, _ = await scene.claim_one()
        await scene.lose(worker)
    worker, claim = await scene.claim_one()
    await scene.finish(worker, claim, kind=OutcomeKind.ALONE)
    await scene.finish(worker, claim, kind=OutcomeKind.RELEASE)
    worker, claim = await scene.claim_one()
    (left,) = (await scene.lose(worker)).left
    assert left.state == READY


@chapter.promise("M110")
async def innocent_neighbours_live(scene: Scene) -> None:
    """With 20 jobs and a worker that dies repeatedly, unmarked jobs never become dead."""
    ids = await scene.add_many(20)
    for round_number in range(8):
        worker = await scene.worker()
        assert len(await scene.claim(worker, MANY)) == 20
        rescued = await scene.lose(worker)
        assert {left.state for left in rescued.left} == {READY}
        for record in await scene.store.get(ids):
            charged = min(round_number + 1, 2)
            assert (record.lost, record.losses) == (charged, charged)
    # Now each has its last chance alone, and only one of them kills its worker.
    poison, *others = ids
    worker = await scene.worker()
    for claim in await scene.claim(worker, MANY):
        await scene.finish(worker, claim, kind=OutcomeKind.RELEASE)
    for job_id in ids:
        worker = await scene.worker()
        (claim,) = await scene.claim(worker, 1)
        assert claim.id == job_id
        await scene.finish(worker, claim, kind=OutcomeKind.ALONE)
        if job_id == poison:
            await scene.lose(worker)
        else:
            await scene.finish(worker, claim)
    assert await scene.state(poison) == DEAD
    assert set((await scene.store.states(others)).values()) == {DONE}


RESETS = {"snooze": OutcomeKind.SNOOZE, "retry": OutcomeKind.RETRY}


@chapter.table(RESETS, "M110")
async def snooze_resets_lost(scene: Scene, kind: OutcomeKind) -> None:
    """So does a retry: no two losses were in a row, so no job becomes dead."""
    job_id = await scene.add()
    for number in range(3):
        worker, claim = await scene.claim_one()
        await scene.finish(worker, claim, kind=kind)
        worker, claim = await scene.claim_one()
        assert (claim.lost, claim.losses) == (0, number)
        await scene.finish(worker, claim, kind=OutcomeKind.ALONE)
        await scene.lose(worker)
        record = await scene.record(job_id)
        assert (record.state, record.lost, record.losses) == (READY, 1, number + 1)


@chapter.promise("M118")
async def a_release_forgives_nothing(scene: Scene) -> None:
    """The job was given back unrun, so its losses in a row do not change."""
    await scene.add()
    worker, _ = await scene.claim_one()
    await scene.lose(worker)
    worker, claim = await scene.claim_one()
    await scene.finish(worker, claim, kind=OutcomeKind.RELEASE)
    _, claim = await scene.claim_one()
    assert (claim.lost, claim.losses) == (1, 1)


@chapter.promise("M112")
async def a_rescue_is_bounded_and_goes_on(scene: Scene) -> None:
    """A worker's row is deleted with its last job; each job leaves once."""
    ids = await scene.add_many(10)
    worker = await scene.worker()
    await scene.claim(worker, MANY)
    scene.clock.advance(LEASE_SECONDS + 1)
    seen: list[bytes] = []
    for _ in range(20):
        rescued = await scene.store.rescue(3, ExpiredLeases())
        assert len(rescued.left) <= 3
        seen += [left.id for left in rescued.left]
        if not rescued.more:
            break
        assert [row.id for row in await scene.store.workers(None)] == [worker]
    assert sorted(seen) == sorted(ids)
    assert await scene.store.workers(None) == []
    assert {r.lost for r in await scene.store.get(ids)} == {1}


@chapter.promise("M112")
async def two_rescuers_do_no_harm(scene: Scene) -> None:
    """In two processes at once, every job leaves once and is charged once."""
    ids = await scene.add_many(30)
    for _ in range(3):
        await scene.claim(await scene.worker(), 10)
    scene.clock.advance(LEASE_SECONDS + 1)
    stores = (scene.store, await scene.other())
    answers = await asyncio.gather(
        *(store.rescue(MANY, ExpiredLeases()) for store in stores * 3)
    )
    assert sorted(left.id for a in answers for left in a.left) == sorted(ids)
    assert {record.lost for record in await scene.store.get(ids)} == {1}


@chapter.promise("M112")
async def a_worker_is_rescued_once(scene: Scene) -> None:
    """A worker that was rescued, or never existed, is not found again."""
    worker, _ = await scene.running()
    assert (await scene.lose(worker)).workers == [worker]
    assert await scene.lose(worker) == ([], [], False)
    assert await scene.lose(worker + 1000) == ([], [], False)


@chapter.promise("M112")
async def rescue_leaves_the_living_alone(scene: Scene) -> None:
    """Neither another worker's ended lease nor a check of this host affects it."""
    alive, claim = await scene.running()
    gone = await scene.worker(lease_seconds=5.0)
    scene.clock.advance(10.0)
    assert (await scene.store.rescue(MANY, ExpiredLeases())).workers == [gone]
    for store in (scene.store, await scene.other()):
        assert await store.rescue(MANY, DeadOnThisHost()) == ([], [], False)
        assert await store.rescue(MANY, Orphans()) == ([], [], False)
    assert (await scene.record(claim.id)).worker == alive
    await scene.finish(alive, claim)


@chapter.promise("M110", "M112", needs=("open_second", "sees_deaths_here"))
async def a_death_on_this_host_is_seen_at_once(scene: Scene) -> None:
    """This is long before its lease ends, and no other worker is affected."""
    assert scene.subject.open_second is not None
    alive, kept = await scene.running(lane="shop:other")
    job_id = await scene.add()
    async with scene.subject.open_second(scene.clock) as doomed:
        worker = await doomed.register(info(), LEASE_SECONDS)
        exchanged = await doomed.exchange(worker, [], [Lane(LANE, 9)], 9)
        assert [claim.id for claim in exchanged.claims] == [job_id]
        assert (await scene.store.rescue(MANY, DeadOnThisHost())).workers == []
    rescued = await scene.store.rescue(MANY, DeadOnThisHost())
    assert (rescued.workers, [left.id for left in rescued.left]) == ([worker], [job_id])
    record = await scene.record(job_id)
    assert (record.state, record.lost, record.losses) == (READY, 1, 1)
    await scene.finish(alive, kept)


@chapter.promise("M112", needs=("fault",))
async def a_failed_rescue_changes_nothing(scene: Scene) -> None:
    """All of its jobs come back and the worker is deleted, or neither."""
    ids = await scene.add_many(3)
    worker = await scene.worker()
    claims = await scene.claim(worker, MANY)
    await scene.store.act([ids[1]], CancelJobs())
    await scene.finish(worker, claims[0], kind=OutcomeKind.ALONE)
    rescued = await scene.after_every_fault(lambda: scene.lose(worker))
    assert [left.state for left in rescued.left] == [READY, CANCELLED, READY]
    assert await scene.store.workers(None) == []


async def orphan(scene: Scene) -> Claim:
    """Make a running job whose worker does not exist."""
    assert scene.subject.forget_worker is not None
    worker, claim = await scene.running()
    await scene.subject.forget_worker(scene.store, worker)
    return claim


@chapter.promise("M112", needs=("forget_worker",))
async def orphans_come_back_uncharged(scene: Scene) -> None:
    """It is not known what happened to their worker."""
    claim = await orphan(scene)
    alive, kept = await scene.running(lane="shop:other")
    rescued = await scene.store.rescue(MANY, Orphans())
    assert [left.id for left in rescued.left] == [claim.id]
    record = await scene.record(claim.id)
    assert (record.state, record.losses, record.lost) == (READY, 0, 0)
    assert await scene.state(kept.id) == RUNNING
    await scene.finish(alive, kept)


@chapter.promise("M112", needs=("forget_worker",))
async def an_asked_cancel_survives_orphan_rescue(scene: Scene) -> None:
    """It leaves by the same exit."""
    claim = await orphan(scene)
    await scene.store.act([claim.id], CancelJobs())
    await scene.store.rescue(MANY, Orphans())
    assert await scene.state(claim.id) == CANCELLED


@chapter.promise()
async def tidying_changes_nothing(scene: Scene) -> None:
    """It changes only space and logs."""
    worker, claim = await scene.running()
    await scene.add_many(3)
    before = await scene.everything()
    await scene.store.tidy()
    assert await scene.everything() == before
    assert (await scene.exchange(worker, [outcome(claim)])).rejected == []
