"""Old and new code on one store: arguments that fit elsewhere are put aside, not buried."""

import os
from typing import Any

import pytest

from durio import App, Job, State
from durio.model.settings import merged
from durio.worker.unrunnable import published_digests
from tests.faults.faulty_store import FaultyStore
from tests.unit.app.app_harness import (
    CALM,
    MEMORY,
    drained,
    in_state,
    record_of,
    records,
    virtual,
)

pytestmark = pytest.mark.slow  # real processes, servers or seconds

DAY = 86400.0


async def add_new_code(app: App) -> tuple[App, Any]:
    """Another program on the same store, whose task has one more parameter."""
    settings = merged({"worker": CALM})
    new = App(MEMORY, clock=app.clock, settings=settings)
    new.state.stores[os.getpid()] = await app.store()

    @new.task(name="mail")
    async def mail(to: str, *, urgent: bool = False) -> str:
        return f"{to} {urgent}"

    return new, mail


def add_old_code(app: App) -> Any:
    @app.task(name="mail")
    async def mail(to: str) -> str:
        return to

    return mail


async def newer_job(app: App) -> tuple[App, Job[str]]:
    """A job of code that workers have had, and that this App has not."""
    add_old_code(app)
    new, mail = await add_new_code(app)
    await drained(new)  # a worker of it was here
    await drained(app)  # ... and one of ours began after it
    return new, await mail.enqueue("a@b.c", urgent=True)


@pytest.mark.proves("M45")
@virtual
async def test_arguments_of_newer_code_wait_for_it(
    app: App, caplog: pytest.LogCaptureFixture
):
    new, job = await newer_job(app)
    with caplog.at_level("WARNING", logger="durio"):
        await drained(app)
    status = await job.status()
    assert (status.state, status.attempt, status.last_error) == (
        State.SCHEDULED,
        1,
        None,
    )
    (told,) = [r for r in caplog.records if getattr(r, "event", "") == "job.parked"]
    assert "urgent" in told.getMessage()  # what does not fit
    assert "reason=bad_payload" in told.getMessage()
    await app.clock.sleep(10)
    await drained(new)
    assert await job.result() == "a@b.c True"


@virtual
async def test_arguments_of_older_code_wait_for_that_too(app: App):
    """The way back: a parameter that the newer code no longer has."""
    new, _ = await add_new_code(app)
    await drained(new)

    @app.task(name="mail")
    async def mail(to: str, language: str) -> str:
        return f"{to} {language}"

    await drained(app)
    job = await mail.enqueue("a@b.c", "fr")
    await drained(new)
    assert (await job.status()).state is State.SCHEDULED
    await app.clock.sleep(10)
    await drained(app)
    assert await job.result() == "a@b.c fr"


@virtual
async def test_after_a_day_without_that_code_it_is_dead_with_the_reason(app: App):
    _, job = await newer_job(app)
    for _ in range(1000):
        await drained(app)
        if (await job.status()).state.is_final:
            break
        await app.clock.sleep(310)
    status = await job.status()
    assert (status.state, status.reason) == (State.DEAD, "bad_payload")
    assert "urgent" in status.last_error.message
    record = await record_of(app, job)
    assert DAY <= record.finished_at - record.created_at < DAY + 400


@virtual
async def test_code_that_nobody_has_had_for_weeks_is_forgotten(app: App):
    mail = add_old_code(app)
    new, _ = await add_new_code(app)
    await drained(new)
    store = await app.store()
    assert len(await published_digests(store, mail.name)) == 1
    await drained(app)
    assert len(await published_digests(store, mail.name)) == 2
    await app.clock.sleep(32 * DAY)
    await drained(app)
    assert len(await published_digests(store, mail.name)) == 1
    await new.enqueue("mail", "a@b.c", urgent=True)
    await drained(app)
    (record,) = await dead(app)
    assert record.reason == "bad_payload"


@virtual
async def test_while_nobody_can_tell_nothing_is_buried(app: App):
    add_old_code(app)
    new, mail = await add_new_code(app)  # no worker of it was ever here
    job = await mail.enqueue("a@b.c", urgent=True)
    faulty = FaultyStore(await app.store(), app.clock)
    faulty.fail("list_records", times=3)  # schedules and limits are listed, too
    app.state.stores[os.getpid()] = faulty
    await drained(app)
    await in_state(job, State.SCHEDULED)
    await app.clock.sleep(10)
    await drained(new)
    assert await job.result() == "a@b.c True"


async def dead(app: App) -> list[Any]:
    return [record for record in await records(app) if record.state == 5]


@virtual
async def test_a_job_of_an_unknown_task_is_parked_with_that_reason(
    app: App, caplog: pytest.LogCaptureFixture
):
    await app.enqueue("elsewhere.mail", "a@b.c")
    await app.enqueue("mail", "a@b.c")
    with caplog.at_level("WARNING", logger="durio"):
        await drained(app)
    (told,) = [r for r in caplog.records if getattr(r, "event", "") == "job.parked"]
    assert "reason=unknown_task" in told.getMessage()
