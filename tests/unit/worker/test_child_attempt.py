"""Attempts in child processes, as the worker sees them: the children here are pretended."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from durio import App, HookEvent, Job, State
from durio.cli.worker import exit_code
from durio.client.job_view import job_errors
from durio.errors import ChildFailed
from durio.model.job import Claim
from durio.model.names import lane
from durio.model.outcome import Outcome, OutcomeKind, Reason
from durio.ports.control import AuditNote, QueueChange
from durio.ports.executor import ChildAttemptCallbacks, ChildVitals
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import JOB_DEAD, JOB_STARTED
from durio.worker.lease_events import LeaseEvents
from tests.bad_input.refusals import asked
from tests.unit.app.app_harness import (
    CALM,
    finished,
    reached,
    record_of,
    virtual,
    working,
)
from tests.unit.app.test_ends import Listener

pytestmark = pytest.mark.slow  # real processes, servers or seconds


@dataclass
class FakeChildAttempt:
    claim: Claim
    sender: ChildAttemptCallbacks
    is_queued: bool = True
    requests: list[str] = field(default_factory=list)

    def withdraw(self) -> bool:
        was, self.is_queued = self.is_queued, False
        return was

    def warn(self) -> None:
        self.requests.append("warn")

    def interrupt(self, why: str) -> None:
        self.requests.append(why)

    def kill(self) -> None:
        self.requests.append("kill")

    # --- what a child would do

    def begin(self) -> None:
        self.is_queued = False
        self.sender.begun()

    def give_back(self) -> None:
        self.is_queued = True
        self.sender.returned()

    def finish(self, kind: OutcomeKind = OutcomeKind.DONE, **fields: Any) -> None:
        word = Outcome(self.claim.id, self.claim.claim_no, kind, **fields)
        self.sender.finished(word, None)

    def die(self, reason: str) -> None:
        word = Outcome(
            self.claim.id, self.claim.claim_no, OutcomeKind.DEAD, reason=reason
        )
        event = JobEvent(
            JOB_DEAD, self.claim.id, self.claim.task, self.claim.lane, 1, reason=reason
        )
        self.sender.finished(word, event)


class FakeChildPool:
    def __init__(self) -> None:
        self.attempts: list[FakeChildAttempt] = []
        self.opened: list[bool] = []
        self.broken: Callable[[Any], None] | None = None
        self.closed = 0

    async def open(self, *, ahead: bool, broken: Callable[[Any], None]) -> None:
        self.opened.append(ahead)
        self.broken = broken

    def send(self, claim: Claim, callbacks: ChildAttemptCallbacks) -> FakeChildAttempt:
        self.attempts.append(FakeChildAttempt(claim, callbacks))
        return self.attempts[-1]

    def vitals(self) -> ChildVitals:
        return ChildVitals(1.5, 1000, 2)

    async def stacks(self, timeout_seconds: float) -> dict[int, str]:
        del timeout_seconds
        return {}

    async def close(self) -> None:
        self.closed += 1


def add(app: App, **options: Any) -> Any:
    @app.task(name="work", process=True, **options)
    def work() -> int: ...

    return work


async def sent(
    child_pool: FakeChildPool, job: Job[Any], number: int = 1
) -> FakeChildAttempt:
    """The errand of the job's so manieth attempt."""
    await reached(job, lambda _: len(child_pool.attempts) >= number)
    return child_pool.attempts[number - 1]


@asynccontextmanager
async def handed_over(
    app: App, **options: Any
) -> AsyncIterator[tuple[Job[Any], FakeChildAttempt]]:
    """A worker whose only job has been handed to its children."""
    nursery, work = FakeChildPool(), add(app, **options)
    async with working(app, child_pool=nursery):
        job = await work.enqueue()
        yield job, await sent(nursery, job)


@virtual
async def test_a_child_makes_the_attempt(app: App) -> None:
    nursery = FakeChildPool()
    work = add(app)
    async with working(app, child_pool=nursery):
        job = await work.enqueue()
        errand = await sent(nursery, job)
        assert (await job.status()).state is State.RUNNING
        errand.begin()
        errand.sender.progressed(b'{"done":1,"total":null,"message":null,"state":null}')
        status = await reached(job, lambda status: status.progress)
        assert status.progress.done == 1
        errand.finish(result=b"7")
        assert (await finished(job)).state is State.DONE
        assert await job.result() == 7
    assert (nursery.opened, nursery.closed, errand.requests) == ([True], 1, [])


@pytest.mark.proves("M105")
@virtual
async def test_its_time_counts_from_the_moment_a_child_has_it(app: App) -> None:
    async with handed_over(app, timeout=(300, 360), retry=0) as (job, errand):
        await app.clock.sleep(10_000)
        assert errand.requests == []
        errand.begin()
        began = app.clock.now()
        status = await finished(job)
        assert errand.requests == ["warn", "kill"]
        errand.finish(result=b"7")  # too late
    assert (status.state, status.last_error.type) == (State.DEAD, "HardTimeLimit")
    assert status.finished_at.timestamp() - began == pytest.approx(360, abs=1)
    assert (await job.status()).state is State.DEAD


@virtual
async def test_a_cancel_in_line_needs_no_child(app: App) -> None:
    async with handed_over(app) as (job, errand):
        await job.cancel()
        assert (await finished(job)).state is State.CANCELLED
        assert (errand.is_queued, errand.requests) == (False, [])


@virtual
async def test_a_cancel_that_nobody_hears_kills_the_child(app: App) -> None:
    async with handed_over(app) as (job, errand):
        errand.begin()
        asked = app.clock.now()
        await job.cancel()
        status = await finished(job)
    assert (status.state, errand.requests) == (State.CANCELLED, ["cancel", "kill"])
    assert 5 <= status.finished_at.timestamp() - asked < 70


@virtual
async def test_what_a_child_never_began_waits_in_line_again(app: App) -> None:
    """And its time counts anew from the next child on."""
    async with handed_over(app, timeout=(300, 360), retry=0) as (job, errand):
        errand.begin()
        await app.clock.sleep(200)
        errand.give_back()
        await app.clock.sleep(10_000)
        assert errand.requests == []
        errand.begin()
        await app.clock.sleep(200)
        errand.finish(result=b"7")
        assert (await finished(job)).state is State.DONE
    assert errand.requests == []
    record = await record_of(app, job)
    assert (record.losses, record.retried, record.claim_no) == (0, 0, 1)


@virtual
async def test_a_cancelled_job_that_comes_back_unbegun_is_over(app: App) -> None:
    async with handed_over(app) as (job, errand):
        errand.begin()
        await job.cancel()
        await reached(job, lambda _: errand.requests == ["cancel"])
        errand.give_back()
        assert not errand.is_queued
        assert (await finished(job)).state is State.CANCELLED
    assert errand.requests == ["cancel"]


@virtual
async def test_an_attempt_that_comes_back_unbegun_is_told_started_once(
    app: App,
) -> None:
    heard, before = Listener(app), list[HookEvent]()
    app.hooks.before(before.append)
    async with handed_over(app) as (job, errand):
        errand.begin()
        errand.give_back()
        errand.begin()
        errand.finish(result=b"7")
        assert (await finished(job)).state is State.DONE
    assert heard.names().count(JOB_STARTED) == 1
    assert [event.attempt for event in before] == [1]


@virtual
async def test_what_comes_back_unbegun_while_the_worker_drains_is_given_back(
    app: App,
) -> None:
    nursery, heard = FakeChildPool(), Listener(app)
    work = add(app)
    async with working(app, child_pool=nursery) as worker:
        job = await work.enqueue()
        errand = await sent(nursery, job)
        errand.begin()
        worker.stop()
        await reached(job, lambda _: "worker.stopping" in heard.names())
        errand.give_back()
        assert not errand.is_queued
    assert errand.requests == []
    record = await record_of(app, job)
    assert (await job.status()).state is State.READY
    assert (record.losses, record.retried, record.claim_no) == (0, 0, 1)


@virtual
async def test_what_comes_back_unbegun_from_a_paused_queue_is_given_back(
    app: App,
) -> None:
    nursery = FakeChildPool()
    work = add(app)
    async with working(app, child_pool=nursery):
        job = await work.enqueue()
        errand = await sent(nursery, job)
        errand.begin()
        store = await app.store()
        await store.set_queue(
            lane(app.name, "default"), QueueChange(paused=True), AuditNote(who="me")
        )
        await app.clock.sleep(2 * CALM["heartbeat_seconds"])
        assert (await job.status()).state is State.RUNNING
        errand.give_back()
        assert not errand.is_queued
        await reached(job, lambda status: status.state is State.READY)
    assert errand.requests == []
    record = await record_of(app, job)
    assert (record.losses, record.retried, record.claim_no) == (0, 0, 1)


@virtual
async def test_a_child_that_dies_of_a_cancel_is_no_loss(app: App) -> None:
    async with handed_over(app) as (job, errand):
        errand.begin()
        await job.cancel()
        await reached(job, lambda _: errand.requests == ["cancel"])
        errand.sender.crashed("child process 7 died: exit code 1", "", is_first=True)
        assert (await finished(job)).state is State.CANCELLED
    assert (await record_of(app, job)).losses == 0


@pytest.mark.proves("M110")
@virtual
async def test_the_third_crash_in_a_row_is_the_end(app: App) -> None:
    nursery, dead = FakeChildPool(), list[HookEvent]()
    work = add(app)
    app.hooks.dead(dead.append)
    async with working(app, child_pool=nursery):
        job = await work.enqueue()
        beside = await work.enqueue()
        await sent(nursery, beside, 2)
        for number in (1, 3, 4):
            # The last chance needs not be alone: its child is its own.
            errand = await sent(nursery, job, number)
            assert Job(app, errand.claim.id) == job
            errand.begin()
            errand.sender.crashed(
                f"child process {number} died", "a stack", is_first=number == 4
            )
        status = await finished(job)
        nursery.attempts[1].begin()
        nursery.attempts[1].finish(result=b"1")
        assert (await finished(beside)).state is State.DONE
    assert (status.state, status.reason) == (State.DEAD, "worker_lost")
    errors = job_errors(await record_of(app, job))
    assert [error.type for error in errors] == ["ChildLost"] * 3
    assert (errors[-1].message, errors[-1].traceback) == (
        "child process 4 died",
        "a stack",
    )
    assert [(event.reason, event.error_type) for event in dead] == [
        ("worker_lost", "ChildLost")
    ]
    assert (await record_of(app, beside)).losses == 0


@virtual
async def test_a_stop_gives_back_the_line_and_kills_what_does_not_end(app: App) -> None:
    nursery = FakeChildPool()
    work = add(app)
    async with working(app, child_pool=nursery):
        jobs = [await work.enqueue() for _ in range(3)]
        await sent(nursery, jobs[-1], 3)
        nursery.attempts[0].begin()
    said = [errand.requests for errand in nursery.attempts]
    assert said == [["stop", "kill"], [], []]
    for job in jobs:
        record = await record_of(app, job)
        assert (await job.status()).state is State.READY
        assert (record.losses, record.retried, record.claim_no) == (0, 0, 1)


@virtual
async def test_a_worker_that_has_lost_its_lease_kills_and_writes_nothing(
    app: App,
) -> None:
    nursery = FakeChildPool()
    work = add(app)
    async with working(app, child_pool=nursery) as worker:
        jobs = [await work.enqueue() for _ in range(2)]
        await sent(nursery, jobs[-1], 2)
        nursery.attempts[0].begin()
        events: LeaseEvents = worker.heartbeat._on_lost.__self__  # type: ignore[attr-defined]
        events._lost(worker.identity.id)
        nursery.attempts[0].sender.crashed("it died", "", is_first=True)
        assert [errand.requests for errand in nursery.attempts] == [["kill"], []]
        again = [await sent(nursery, jobs[-1], number) for number in (3, 4)]
        for errand in again:
            errand.begin()
            errand.finish(result=b"1")
        for job in jobs:
            assert (await finished(job)).state is State.DONE
            assert (await record_of(app, job)).losses == 0


@virtual
async def test_children_that_never_start_end_the_worker(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    nursery = FakeChildPool()
    work = add(app)
    job = await work.enqueue()
    async with working(app, child_pool=nursery) as worker:
        await sent(nursery, job)
        nursery.broken(error := ChildFailed("it did not start"))
        await worker.stop_control.requested.wait()
    assert worker.broken is error
    assert exit_code(worker, None) == 70
    (told,) = [r for r in caplog.records if vars(r).get("event") == "worker.broken"]
    assert told.getMessage().endswith("error=it did not start")
    assert (await job.status()).state is State.READY


@virtual
async def test_no_child_is_started_ahead_for_queues_that_need_none(app: App) -> None:
    nursery = FakeChildPool()
    work = add(app, queue="images")
    async with working(app, child_pool=nursery, queues=["default"]):
        job = await work.options(queue="default").enqueue()
        errand = await sent(nursery, job)
        errand.begin()
        errand.finish(result=b"1")
        assert (await finished(job)).state is State.DONE
    assert nursery.opened == [False]


@virtual
async def test_what_a_child_tells_carries_the_meta_of_the_job(app: App) -> None:
    """Which does not travel: numbers in it may be of any size."""
    nursery, heard = FakeChildPool(), Listener(app)
    work = add(app)
    async with working(app, child_pool=nursery):
        job = await work.options(meta={"n": 2**70}).enqueue()
        errand = await sent(nursery, job)
        errand.begin()
        errand.die(Reason.PERMANENT)
        assert (await finished(job)).state is State.DEAD
    told = [fields["meta"] for name, fields in heard.heard if name == JOB_DEAD]
    assert told == [{"n": 2**70}]


@virtual
async def test_arguments_that_only_the_code_of_a_child_refuses_wait(app: App) -> None:
    """It loaded newer code from disk; this worker could still read them."""
    nursery = FakeChildPool()
    work = add(app)
    async with working(app, child_pool=nursery):
        job = await work.enqueue()
        errand = await sent(nursery, job)
        errand.begin()
        errand.die(Reason.BAD_PAYLOAD)
        status = await reached(job, lambda status: status.state is not State.RUNNING)
        assert (status.state, status.reason) == (State.SCHEDULED, None)
        again = await sent(nursery, job, 2)
        again.begin()
        again.finish(result=b"1")
        assert (await finished(job)).state is State.DONE
    record = await record_of(app, job)
    assert (record.losses, record.retried) == (0, 0)


@virtual
async def test_arguments_that_nobody_can_read_are_dead_at_once(app: App) -> None:
    nursery = FakeChildPool()
    job = await add(app).enqueue()
    await asked(app, "update job set payload = ?", b"[[7],{}]")  # it takes none
    async with working(app, child_pool=nursery):
        errand = await sent(nursery, job)
        errand.begin()
        errand.die(Reason.BAD_PAYLOAD)
        status = await finished(job)
    assert (status.state, status.reason) == (State.DEAD, "bad_payload")
