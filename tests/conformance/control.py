"""What a store promises to operators: pause, cancel, retry."""

from collections.abc import Awaitable, Callable

from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING, SCHEDULED, Claim
from durio.model.outcome import OutcomeKind
from durio.ports.control import Acted, AuditNote, CancelJobs, QueueChange, RetryJobs
from durio.ports.exchange import Lane
from durio.ports.upkeep import ExpiredLeases
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, LEASE_SECONDS, MANY, Scene, outcome

chapter = Chapter("control")


# --- pause

PAUSED, RESUMED = QueueChange(paused=True), QueueChange(paused=False)


@chapter.promise()
async def a_paused_queue_gives_nothing(scene: Scene) -> None:
    """Other queues are not affected; jobs still enter and come back; a resume undoes it."""
    worker, claim = await scene.running()
    ids = await scene.add_many(2)
    beside = await scene.add(lane="shop:beside")
    await (await scene.other()).set_queue(LANE, PAUSED, AuditNote(who="ann"))
    lanes = [Lane(LANE, 9), Lane("shop:beside", 9)]
    exchanged = await scene.store.exchange(worker, [outcome(claim)], lanes, 9)
    assert [c.id for c in exchanged.claims] == [beside]
    assert exchanged.rejected == []
    ids.append(await scene.add())
    assert await scene.claim(worker, MANY) == []
    assert await scene.claim(worker, MANY, known=["shop.pay"]) == []
    rows = {row.name: row.paused for row in await scene.store.queues("shop")}
    assert rows == {LANE: True, "shop:beside": False}
    await scene.store.set_queue(LANE, RESUMED, AuditNote(who="ann"))
    assert [c.id for c in await scene.claim(worker, MANY)] == ids


@chapter.promise()
async def a_queue_may_be_paused_before_its_first_job(scene: Scene) -> None:
    """Pausing twice is the same as pausing once."""
    for _ in range(2):
        await scene.store.set_queue("shop:new", PAUSED, AuditNote(who="ann"))
    await scene.add(lane="shop:new")
    worker = await scene.worker()
    assert await scene.claim(worker, lane="shop:new") == []
    await scene.store.set_queue("shop:new", RESUMED, AuditNote(who="ann"))
    assert len(await scene.claim(worker, lane="shop:new")) == 1


# --- cancel


@chapter.promise()
async def a_waiting_job_is_cancelled_at_once(scene: Scene) -> None:
    """A ready or scheduled job is final at once, and never claimed."""
    ready, scheduled = await scene.add(), await scene.add(delay=10.0)
    acted = await (await scene.other()).act([ready, scheduled], CancelJobs())
    assert acted == [
        Acted(ready, READY, CANCELLED),
        Acted(scheduled, SCHEDULED, CANCELLED),
    ]
    assert (await scene.record(ready)).finished_at == scene.clock.now()
    scene.clock.advance(10.0)
    assert await scene.claim(await scene.worker(), MANY) == []


@chapter.promise()
async def a_running_job_is_asked_to_stop(scene: Scene) -> None:
    """It stays running until its worker reports how it ended."""
    worker, claim = await scene.running()
    for _ in range(2):
        acted = await scene.store.act([claim.id], CancelJobs())
        assert acted == [Acted(claim.id, RUNNING, RUNNING)]
        assert (await scene.record(claim.id)).cancel_asked
    renewed = await scene.store.renew(worker, LEASE_SECONDS)
    assert renewed.cancels == [(claim.id, 1)]
    await scene.finish(worker, claim, kind=OutcomeKind.CANCEL)
    assert await scene.state(claim.id) == CANCELLED


@chapter.promise()
async def what_is_final_or_unknown_is_left_alone(scene: Scene) -> None:
    """The result says which states were found, in the order of the ids."""
    worker, claim = await scene.running()
    await scene.finish(worker, claim, result=b"1")
    dead = await scene.dead()
    unknown = scene.clock.new_id()
    before = await scene.records()
    acted = await scene.store.act([claim.id, unknown, dead], CancelJobs())
    assert acted == [
        Acted(claim.id, DONE, DONE),
        Acted(unknown, None, None),
        Acted(dead, DEAD, DEAD),
    ]
    assert await scene.records() == before


@chapter.promise()
async def a_done_that_commits_first_wins(scene: Scene) -> None:
    """The work is finished, so the job must not be shown as cancelled."""
    worker, claim = await scene.running()
    await scene.store.act([claim.id], CancelJobs())
    exchanged = await scene.exchange(worker, [outcome(claim, result=b"1")])
    assert (exchanged.rejected, exchanged.cancelled) == ([], [])
    record = await scene.record(claim.id)
    assert (record.state, record.result) == (DONE, b"1")


Way = Callable[[Scene, int, Claim], Awaitable[None]]


def sent_outcome(kind: OutcomeKind, delay_seconds: float = 0.0) -> Way:
    """Return a way out by an outcome, which becomes a cancel and is reported as one."""

    async def end(scene: Scene, worker: int, claim: Claim) -> None:
        fields = {"delay_seconds": delay_seconds, "reason": "permanent", "error": b"{}"}
        exchanged = await scene.exchange(worker, [outcome(claim, kind, **fields)], 0)
        assert exchanged.rejected == []
        assert exchanged.cancelled == [claim.id]

    return end


async def rescued(scene: Scene, worker: int, claim: Claim) -> None:
    """End the attempt by a rescue."""
    scene.clock.advance(LEASE_SECONDS + 1)
    (left,) = (await scene.store.rescue(MANY, ExpiredLeases())).left
    assert (left.id, left.state, left.worker) == (claim.id, CANCELLED, worker)


async def left_behind(scene: Scene, worker: int, claim: Claim) -> None:
    """End the attempt by the leave of its worker."""
    assert claim.claim_no
    await scene.store.leave(worker)


WAYS: dict[str, Way] = {
    "release": sent_outcome(OutcomeKind.RELEASE),
    "delayed release": sent_outcome(OutcomeKind.RELEASE, 60.0),
    "retry": sent_outcome(OutcomeKind.RETRY),
    "delayed retry": sent_outcome(OutcomeKind.RETRY, 60.0),
    "snooze": sent_outcome(OutcomeKind.SNOOZE, 60.0),
    "death": sent_outcome(OutcomeKind.DEAD),
    "rescue": rescued,
    "loss of its own child": Scene.crash_child,
    "leave": left_behind,
}


@chapter.table(WAYS)
async def asked_cancel_survives(scene: Scene, way: Way) -> None:
    """However the attempt ends, the job is cancelled, uncharged, and never starts again."""
    worker, claim = await scene.running()
    await scene.store.act([claim.id], CancelJobs())
    await way(scene, worker, claim)
    record = await scene.record(claim.id)
    assert (record.state, record.worker) == (CANCELLED, None)
    assert (record.retried, record.losses, record.snoozed) == (0, 0, 0)
    assert record.finished_at == scene.clock.now()
    scene.clock.advance(3600.0)
    assert await scene.claim(await scene.worker(), MANY) == []


# --- retry


@chapter.promise("M80", "M91")
async def a_dead_letter_goes_there_and_back(scene: Scene) -> None:
    """Counters are zero, the fence is unchanged, and the next claim has the next number."""
    job_id = await scene.add()
    for kind in (
        OutcomeKind.RETRY,
        OutcomeKind.SNOOZE,
        OutcomeKind.LOST,
        OutcomeKind.DEAD,
    ):
        worker, claim = await scene.claim_one()
        if kind is OutcomeKind.LOST:
            await scene.lose(worker)
        else:
            await scene.finish(worker, claim, kind=kind, reason="exhausted")
    assert (await scene.record(job_id)).reason == "exhausted"
    acted = await scene.store.act([job_id], RetryJobs())
    assert acted == [Acted(job_id, DEAD, READY)]
    record = await scene.record(job_id)
    counters = (record.retried, record.losses, record.lost, record.snoozed)
    assert (counters, record.claim_no) == ((0, 0, 0, 0), 4)
    assert (record.state, record.finished_at, record.reason) == (READY, None, None)
    worker, claim = await scene.claim_one()
    assert (claim.id, claim.claim_no) == (job_id, 5)
    await scene.finish(worker, claim, result=b"1")
    assert (await scene.record(job_id)).result == b"1"


@chapter.promise()
async def a_cancelled_job_may_be_retried(scene: Scene) -> None:
    """This includes a job that was cancelled while running: the old cancel is cleared."""
    worker, claim = await scene.running()
    await scene.store.act([claim.id], CancelJobs())
    await scene.finish(worker, claim, kind=OutcomeKind.RELEASE)
    assert await scene.store.act([claim.id], RetryJobs()) == [
        Acted(claim.id, CANCELLED, READY)
    ]
    (again,) = await scene.claim(worker)
    renewed = await scene.store.renew(worker, LEASE_SECONDS)
    assert renewed.cancels == []
    await scene.finish(worker, again, kind=OutcomeKind.RETRY)
    assert await scene.is_ready(claim.id)


@chapter.promise()
async def only_dead_and_cancelled_jobs_are_retried(scene: Scene) -> None:
    """Other jobs, and unknown ones, stay unchanged."""
    worker, done = await scene.running()
    await scene.finish(worker, done)
    _, running = await scene.running()
    ready, scheduled = await scene.add(), await scene.add(delay=10.0)
    unknown = scene.clock.new_id()
    ids = [done.id, running.id, ready, scheduled, unknown]
    before = await scene.everything()
    acted = await scene.store.act(ids, RetryJobs())
    states = [DONE, RUNNING, READY, SCHEDULED, None]
    assert acted == [Acted(i, s, s) for i, s in zip(ids, states, strict=True)]
    assert await scene.everything() == before
