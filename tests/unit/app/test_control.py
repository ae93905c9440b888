"""What is done to a job while it waits or runs: cancel, progress, stop of its worker."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from durio import App, Context, JobCancelled, Progress, Retry, State
from durio.errors import UsageError, WrongState
from durio.keys import while_active
from tests.unit.app.app_harness import (
    drained,
    finished,
    in_state,
    reached,
    real,
    virtual,
    working,
)

# --- retry by hand


@virtual
async def test_a_job_whose_key_another_one_has_is_not_retried(app: App):
    @app.task(name="task")
    async def task() -> None: ...

    keyed = task.options(key="k", unique=while_active)
    first = await keyed.enqueue()
    await first.cancel()
    second = await keyed.enqueue()
    assert second.created
    with pytest.raises(WrongState, match="another job has its idempotency key"):
        await first.retry()
    assert (await first.status()).state is State.CANCELLED
    await second.cancel()
    await first.retry()
    third = await keyed.enqueue()
    assert (third.id, third.created) == (first.id, False)


# --- cancel


@pytest.mark.parametrize("delay", [0, 60])
@virtual
async def test_a_waiting_job_is_cancelled_at_once_and_never_runs(app: App, delay: int):
    ran: list[int] = []

    @app.task(name="task")
    async def task() -> None:
        ran.append(1)

    job = await task.options(delay=delay).enqueue()
    assert await job.cancel() is State.CANCELLED
    assert await job.cancel() is State.CANCELLED  # again is no mistake
    async with working(app):
        await app.clock.sleep(100)
        with pytest.raises(JobCancelled):
            await job.result()
    assert ran == []


@virtual
async def test_a_running_job_is_asked_and_ends_as_cancelled(app: App):
    cleaned: list[str] = []

    @app.task(name="task")
    async def task() -> None:
        try:
            await app.clock.sleep(1000)
        finally:
            cleaned.append("up")

    async with working(app):
        job = await task.enqueue()
        await in_state(job, State.RUNNING)
        start = app.clock.now()
        assert await job.cancel() is State.RUNNING
        status = await finished(job)
        assert app.clock.now() - start < 30  # by a ring, not by the next heartbeat
    assert (status.state, status.last_error) == (State.CANCELLED, None)
    assert cleaned == ["up"]


@virtual
async def test_a_job_that_ends_well_although_it_was_asked_is_done(app: App):
    @app.task(name="task")
    async def task() -> str:
        try:
            await app.clock.sleep(1000)
        except asyncio.CancelledError:
            return "finished anyway"
        return "never"

    async with working(app):
        job = await task.enqueue()
        await in_state(job, State.RUNNING)
        await job.cancel()
        assert await job.result() == "finished anyway"


@virtual
async def test_a_job_that_fails_after_it_was_asked_is_cancelled_not_retried(app: App):
    @app.task(name="task", retry=5)
    async def task() -> None:
        try:
            await app.clock.sleep(1000)
        except asyncio.CancelledError:
            raise ConnectionError("while cleaning up") from None

    async with working(app):
        job = await task.enqueue()
        await in_state(job, State.RUNNING)
        await job.cancel()
        status = await finished(job)
    assert (status.state, status.attempt) == (State.CANCELLED, 1)


@virtual
async def test_a_cancelled_job_can_be_retried_under_its_id(app: App):
    @app.task(name="task")
    async def task() -> int:
        return 7

    job = await task.enqueue()
    await job.cancel()
    await job.retry()
    await drained(app)
    assert await job.result() == 7


@real
async def test_a_thread_sees_that_it_was_asked(app: App):
    @app.task(name="task")
    def task(ctx: Context) -> str:
        while not ctx.cancelled:
            sum(range(100))
        return "stopped by itself"

    async with working(app):
        job = await task.enqueue()
        await in_state(job, State.RUNNING)
        await job.cancel()
        assert await job.result(timeout=60) == "stopped by itself"


# --- progress


@pytest.mark.proves("M168")
@virtual
async def test_progress_is_seen_while_it_runs_within_a_second(app: App):
    go = asyncio.Event()

    @app.task(name="task")
    async def task(ctx: Context) -> None:
        for done in range(4):
            await ctx.progress(done, 10, message="resizing", state="UPLOADING")
        await go.wait()
        await ctx.progress(10, 10)

    async with working(app):
        start = app.clock.now()
        job = await task.enqueue()
        status = await reached(job, lambda status: status.progress)
        assert app.clock.now() - start < 1
        assert status.state is State.RUNNING
        # Only the newest counts.
        since = status.progress.changes[0][1]
        told = Progress(3, 10, "resizing", "UPLOADING", (("UPLOADING", since),))
        assert status.progress == told
        go.set()
        await finished(job)


@pytest.mark.proves("M167", "L27")
@virtual
async def test_the_states_of_a_task_are_recorded_with_their_times(app: App):
    @app.task(name="load", states=["VALIDATING", "PROCESSING", "UPLOADING"])
    async def load(ctx: Context) -> None:
        for done, state in enumerate(("VALIDATING", "PROCESSING", "UPLOADING")):
            await ctx.progress(done, 3, state=state, message=f"step {done}")
            await app.clock.sleep(10)
        await ctx.progress(3, 3)
        with pytest.raises(UsageError, match="does not declare the state 'DONE'"):
            await ctx.progress(3, state="DONE")

    async with working(app):
        job = await load.enqueue()
        status = await finished(job)
    assert status.progress is not None
    states, times = zip(*status.progress.changes, strict=True)
    assert states == ("VALIDATING", "PROCESSING", "UPLOADING")
    passed = [later - earlier for earlier, later in pairwise(times)]
    assert passed == [timedelta(seconds=10)] * 2
    assert (status.progress.done, status.progress.state) == (3, None)


@pytest.mark.proves("M168")
@real
async def test_progress_from_a_thread(app: App):
    @app.task(name="task")
    def task(ctx: Context) -> None:
        ctx.progress(1, 2)
        while not ctx.cancelled:
            sum(range(100))

    async with working(app):
        job = await task.enqueue()
        status = await reached(job, lambda status: status.progress)
        assert status.progress == Progress(1, 2)
        await job.cancel()
        await finished(job)


def test_progress_of_a_plain_call_goes_nowhere():
    app = App("sqlite:///:memory:")

    @app.task(name="task")
    async def task(ctx: Context) -> str:
        await ctx.progress(1, 2)
        return ctx.job_id

    assert asyncio.run(task())


# --- the end of a worker


@virtual(settings={"worker": {"grace_seconds": 25}})
async def test_a_stopping_worker_lets_running_jobs_end(app: App):
    @app.task(name="task")
    async def task() -> str:
        await app.clock.sleep(20)
        return "in time"

    async with working(app) as worker:
        job = await task.enqueue()
        await in_state(job, State.RUNNING)
    assert (await job.status()).state is State.DONE
    assert not worker.was_cut_short


@virtual(settings={"worker": {"grace_seconds": 25}})
async def test_a_worker_that_is_asked_twice_gives_back_at_once(app: App):
    @app.task(name="task", retry=Retry(0))
    async def task() -> None:
        await app.clock.sleep(20)

    async with working(app) as worker:
        job = await task.enqueue()
        await in_state(job, State.RUNNING)
        start = app.clock.now()
        worker.stop()
    assert app.clock.now() - start < 20
    assert (await job.status()).state is State.READY


@virtual(settings={"worker": {"grace_seconds": 5}})
async def test_what_outlives_the_grace_goes_back_uncharged(app: App):
    started: list[int] = []

    @app.task(name="task", retry=Retry(0))
    async def task(ctx: Context) -> int:
        started.append(ctx.attempt)
        if len(started) == 1:
            await app.clock.sleep(1000)
        return ctx.attempt

    async with working(app) as worker:
        job = await task.enqueue()
        await in_state(job, State.RUNNING)
    assert worker.was_cut_short
    assert (await job.status()).state is State.READY
    await drained(app)
    assert await job.result() == 1
    assert started == [1, 1]
