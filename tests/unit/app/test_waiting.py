"""Waiting for a job inside a task: refused, for it would hold the slot it waits for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from durio import App, Context, Job, JobDead, Snooze, State
from tests.unit.app.app_harness import drained, finished, real, virtual, working

pytestmark = pytest.mark.proves("M120")


def add_tasks(app: App) -> tuple[Any, Any]:
    """A task that is never run, and one that is."""

    @app.task(name="other", queue="later")
    async def other() -> int:
        return 42

    @app.task(name="quick")
    async def quick() -> int:
        return 7

    return other, quick


@virtual
async def test_a_task_that_waits_for_a_job_is_told_so_at_once(app: App):
    other, _ = add_tasks(app)

    @app.task(name="impatient", retry=0)
    async def impatient() -> None:
        job = await other.options(delay="1h").enqueue()
        await job.result(timeout=5)

    async with working(app, queues=["default"]):
        began = app.clock.now()
        job = await impatient.enqueue()
        status = await finished(job)
        assert app.clock.now() - began < 5  # it did not wait
        with pytest.raises(JobDead, match=r"app\.impatient waits for job") as caught:
            await job.result()
    assert status.state is State.DEAD
    assert caught.value.error.type == "UsageError"
    assert "Snooze" in caught.value.error.message


@real
async def test_a_thread_is_told_the_same(app: App):
    other, _ = add_tasks(app)

    @app.task(name="impatient", retry=0)
    def impatient() -> None:
        other.options(delay="1h").enqueue_sync().result_sync(timeout=5)

    async with working(app, queues=["default"]):
        with pytest.raises(JobDead, match=r"app\.impatient waits for job"):
            await (await impatient.enqueue()).result(timeout=30)


@virtual
async def test_what_a_task_starts_beside_itself_is_still_in_it(app: App):
    other, _ = add_tasks(app)

    @app.task(name="impatient", retry=0)
    async def impatient() -> None:
        job = await other.options(delay="1h").enqueue()
        await asyncio.gather(job.result(), job.status())

    async with working(app):
        with pytest.raises(JobDead, match=r"app\.impatient waits for job"):
            await (await impatient.enqueue()).result()


@virtual
async def test_looking_is_allowed_and_so_is_the_result_of_a_job_that_has_ended(
    app: App,
):
    """The pattern that the error recommends."""
    _, quick = add_tasks(app)
    made: list[Job[int]] = []

    @app.task(name="patient")
    async def patient() -> int:
        if not made:
            made.append(await quick.enqueue())
        if not (await made[0].status()).state.is_final:
            raise Snooze("10s")
        return await made[0].result()

    async with working(app):
        assert await (await patient.enqueue()).result() == 7


@virtual
async def test_a_plain_call_outside_a_worker_may_wait(app: App):
    _, quick = add_tasks(app)

    @app.task(name="asks")
    async def asks() -> int:
        return await (await quick.enqueue()).result()

    async with working(app):
        assert await asks() == 7


@virtual
async def test_middleware_is_part_of_the_attempt(app: App):
    other, quick = add_tasks(app)

    async def waits(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        if ctx.task == "app.quick":
            await (await other.options(delay="1h").enqueue()).result()
        return await call_next()

    app.middleware = (waits,)
    async with working(app):
        job = await quick.options(retry=0).enqueue()
        with pytest.raises(JobDead, match=r"app\.quick waits for job"):
            await job.result()


@virtual
async def test_hooks_hold_no_slot_and_may_wait(app: App):
    _, quick = add_tasks(app)
    seen: list[int] = []

    @app.task(name="first")
    async def first() -> None: ...

    @app.hooks.after
    async def follow(event: Any) -> None:
        if event.task == "app.first":
            seen.append(await (await quick.enqueue()).result())

    await first.enqueue()
    async with working(app):
        for _ in range(100):
            await app.clock.sleep(0.1)
    assert seen == [7]


@virtual
async def test_the_callers_context_is_clean_again_after_a_worker_ran_in_it(app: App):
    _, quick = add_tasks(app)
    job = await quick.enqueue()
    await drained(app)
    assert await job.result() == 7
