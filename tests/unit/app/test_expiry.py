"""Jobs that expire: dead within 2 s of virtual time, wherever they wait."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durio import App, Context, Job, JobDead, Retry, Snooze, State
from durio.errors import InvalidOption
from durio.model.effects import Effects, Put
from durio.model.expiry import expiries_kind
from durio.model.job import DEAD
from durio.ports.control import Acted, KillJobs
from durio.worker.middleware import HookEvent
from tests.unit.app.app_harness import (
    drained,
    finished,
    in_state,
    record_of,
    virtual,
    working,
)

pytestmark = pytest.mark.slow  # real processes, servers or seconds

SOON = 2.0  # seconds within which an expired job is dead


def noting(app: App, **options: Any) -> tuple[Any, list[int]]:
    """Return a task that notes the numbers of its attempts."""
    runs: list[int] = []

    @app.task(name="note", **options)
    async def note(ctx: Context) -> None:
        runs.append(ctx.attempt)

    return note, runs


async def seen_expired(app: App, job: Job[Any], seconds: float) -> None:
    """Check that the job waits until it expires, and is dead soon afterwards."""
    start = (await job.status()).created_at.timestamp()
    await app.clock.sleep(start + seconds - 0.01 - app.clock.now())
    assert not (await job.status()).state.is_final
    await app.clock.sleep(SOON)
    status = await job.status()
    assert (status.state, status.reason) == (State.DEAD, "expired")
    assert status.last_error is not None
    assert status.last_error.type == "JobExpired"
    with pytest.raises(JobDead) as caught:
        await job.result()
    assert caught.value.reason == "expired"


async def no_records(app: App) -> bool:
    store = await app.store()
    return not await store.list_records(expiries_kind(app.name))


# --- where a job waits


@virtual
async def test_a_job_in_a_paused_queue_expires(app: App):
    note, runs = noting(app, expires="90s")
    await app.queue("default").pause("no mail")
    async with working(app):
        job = await note.enqueue()
        await seen_expired(app, job, 90)
        assert await no_records(app)
    assert runs == []


@virtual
async def test_a_job_in_an_unserved_queue_expires(app: App):
    note, _ = noting(app)
    app.queue("other", weight=1)
    async with working(app, queues=["other"]):
        job = await note.options(queue="lonely", expires=timedelta(hours=1)).enqueue()
        await seen_expired(app, job, 3600)


@virtual
async def test_a_scheduled_job_expires_before_a_later_time(app: App):
    """A snooze or a retry may put its next attempt after the expiry."""

    @app.task(name="wait", expires=30)
    async def wait() -> None:
        raise Snooze("10m")

    async with working(app):
        job = await wait.enqueue()
        await in_state(job, State.SCHEDULED)
        await seen_expired(app, job, 30)


@virtual
async def test_a_blocked_job_expires_and_fails_its_plan(app: App):
    note, runs = noting(app)
    failures: list[str] = []

    @app.task(name="slow")
    async def slow() -> None:
        await app.clock.sleep(100)

    @app.task(name="alert")
    async def alert(failure: dict[str, Any]) -> None:
        failures.append(failure["error_type"])

    plan = slow.si() | note.options(expires="20s").si() | note.si()
    async with working(app):
        job = await plan.on_error(alert.s()).enqueue()
        with pytest.raises(JobDead) as caught:
            await job.result(timeout="25s")
        assert caught.value.reason == "expired"
        await app.clock.sleep(200)
    assert runs == []
    assert failures == ["JobExpired"]


@virtual
async def test_an_aware_datetime_is_an_expiry(app: App):
    note, _ = noting(app)
    await app.queue("default").pause("closed")
    at = datetime.fromtimestamp(app.clock.now() + 45, UTC)
    async with working(app):
        await seen_expired(app, await note.options(expires=at).enqueue(), 45)


@virtual
async def test_a_worker_judges_before_the_call(app: App):
    """The leader knows nothing of the job: its record is deleted."""
    note, runs = noting(app)
    job = await note.options(expires=5).enqueue()
    store, kind = await app.store(), expiries_kind(app.name)
    (record,) = await store.list_records(kind)
    await store.commit(Effects(puts=[Put(kind, record.name, None)]))
    await app.clock.sleep(5)
    await drained(app)
    assert (await job.status()).reason == "expired"
    assert runs == []


@virtual
async def test_a_thousand_jobs_of_one_call_expire(app: App):
    note, _ = noting(app, expires="1m")
    await app.queue("default").pause("closed")
    jobs = await note.enqueue_many([()] * 1000)
    async with working(app):
        await app.clock.sleep(60 + SOON)
        assert await app.jobs(reason="expired").count() == len(jobs)
        assert await no_records(app)


# --- jobs that start in time


@virtual
async def test_a_running_job_is_not_touched(app: App):
    @app.task(name="slow", expires="10s")
    async def slow() -> str:
        await app.clock.sleep(100)
        return "done"

    async with working(app):
        job = await slow.enqueue()
        assert await job.result() == "done"
        await app.clock.sleep(60)
        assert await no_records(app)


@virtual
async def test_an_attempt_that_would_begin_too_late_is_not_waited_for(app: App):
    """A retry after the expiry makes the job dead at once; its own error is kept."""
    attempts: list[int] = []

    @app.task(
        name="fail", expires="1m", retry=Retry(5, delays=["20s", "50s"], jitter=False)
    )
    async def fail(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise ConnectionError("away")

    async with working(app):
        job = await fail.enqueue()
        status = await finished(job)
    assert attempts == [1, 2]
    assert status.reason == "expired"
    assert status.last_error is not None
    assert status.last_error.type == "ConnectionError"
    assert status.finished_at is not None
    assert 20 <= (status.finished_at - status.created_at).total_seconds() < 21


@virtual
async def test_a_job_that_comes_back_after_its_expiry_expires(app: App):
    """Its worker stopped in the middle of it, and its queue is paused."""

    @app.task(name="slow", expires="10s")
    async def slow() -> None:
        await app.clock.sleep(1000)

    app.queue("other", weight=1)
    async with working(app, queues=["other"]):
        async with working(app, queues=["default"]) as worker:
            job = await slow.enqueue()
            await in_state(job, State.RUNNING)
            await app.clock.sleep(20)
            await app.queue("default").pause("stop")
            worker.stop()
            worker.stop()  # without grace
        assert (await job.status()).state is State.READY
        await app.clock.sleep(35)
        assert (await job.status()).reason == "expired"


# --- by hand


@virtual
async def test_a_retry_by_hand_does_not_expire_again(app: App):
    note, runs = noting(app, expires="1m")
    await app.queue("default").pause("closed")
    async with working(app):
        job = await note.enqueue()
        await app.clock.sleep(60 + SOON)
        done = await app.jobs(state="dead", reason="expired").retry()
        assert done.changed == 1
        await app.clock.sleep(600)
        assert (await job.status()).state is State.READY
        await app.queue("default").resume()
        assert (await finished(job)).state is State.DONE
    assert runs == [1]


@virtual
async def test_hooks_are_called_once(app: App):
    note, _ = noting(app, expires="1m")
    seen: list[HookEvent] = []
    app.hooks.dead(seen.append)
    await app.queue("default").pause("closed")
    async with working(app), working(app):
        job = await note.options(meta={"tenant": 7}).enqueue()
        await app.clock.sleep(60 + 2 * SOON)
    (event,) = seen
    assert (event.job_id, event.reason, event.attempt) == (job.id, "expired", 1)
    assert (event.error_type, event.meta) == ("JobExpired", {"tenant": 7})


@virtual
async def test_two_leaders_do_no_harm(app: App):
    """The second one finds the job dead."""
    note, _ = noting(app, expires="1m")
    job = await note.enqueue()
    store = await app.store()
    raw = (await record_of(app, job)).id
    kill = KillJobs("expired", b'{"type":"JobExpired"}')
    acted = [*(await store.act([raw], kill)), *(await store.act([raw], kill))]
    assert [one.after for one in acted] == [DEAD, DEAD]
    assert [one.is_changed_by(kill) for one in acted] == [True, False]
    assert acted[1] == Acted(raw, DEAD, DEAD)


# --- options


@virtual
async def test_a_call_may_remove_or_replace_the_expiry_of_its_task(app: App):
    note, runs = noting(app, expires="1m")
    await app.queue("default").pause("closed")
    never = await note.options(expires=None).enqueue()
    later = await note.options(expires="2m").enqueue()
    async with working(app):
        await app.clock.sleep(60 + SOON)
        assert (await later.status()).state is State.READY
        await app.clock.sleep(60 + SOON)
        assert (await later.status()).reason == "expired"
        await app.queue("default").resume()
        assert (await finished(never)).state is State.DONE
    assert runs == [1]


@virtual
async def test_a_producer_by_name_knows_the_expiry_of_the_task(app: App):
    noting(app, expires="1m")
    producer = App("sqlite:///:memory:", name=app.name, clock=app.clock)
    producer.state = app.state
    async with working(app):
        await app.queue("default").pause("closed")
        await app.clock.sleep(1)  # the worker publishes its tasks
        job = await producer.enqueue("note")
        await seen_expired(app, job, 60)


@virtual
async def test_a_replaced_job_expires_by_its_newest_call(app: App):
    note, _ = noting(app)
    await app.queue("default").pause("closed")
    call = note.options(key="a", unique="replace")
    job = await call.options(expires="1m").enqueue()
    again = await call.options(expires="10m").enqueue()
    assert again == job
    async with working(app):
        await app.clock.sleep(60 + SOON)
        assert (await job.status()).state is State.READY
        await app.clock.sleep(540)
        assert (await job.status()).reason == "expired"


@virtual
async def test_a_plain_job_writes_no_record(app: App):
    note, _ = noting(app)
    job = await note.enqueue()
    assert await no_records(app)
    assert (await record_of(app, job)).opts is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires": 0}, "expires cannot be 0"),
        ({"expires": -1}, "expires cannot be -1"),
        ({"expires": "soon"}, "expires cannot be 'soon'"),
        ({"expires": True}, "expires cannot be True"),
        ({"expires": datetime(2040, 1, 1)}, "expires cannot be datetime"),  # noqa: DTZ001
        (
            {"expires": datetime(2000, 1, 1, tzinfo=UTC)},
            "2000-01-01 00:00:00+00:00 passed",
        ),
        ({"expires": 5, "delay": 5}, "expire 5 s after its enqueue, and may not start"),
        ({"expires": 5, "at": datetime(2040, 1, 1, tzinfo=UTC)}, "may not start"),
        ({"expires": "1m", "delay": "2h"}, "before 2 h have passed"),
    ],
    ids=str,
)
@virtual
async def test_an_expiry_that_cannot_work_is_refused(
    app: App, options: dict[str, Any], words: str
):
    note, _ = noting(app)
    with pytest.raises(InvalidOption) as caught:
        await note.options(**options).enqueue()
    assert words in str(caught.value)
    assert await app.jobs().count() == 0
    assert await no_records(app)


def test_a_task_is_refused_at_its_declaration():
    app = App("sqlite:///:memory:")
    with pytest.raises(InvalidOption, match="expires cannot be 'x'"):

        @app.task(expires="x")
        async def note() -> None: ...
