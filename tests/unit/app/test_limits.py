"""Time limits: the soft one warns inside the task, the hard one ends the attempt."""

import asyncio
from contextlib import suppress

import pytest

from durio import App, Context, Retry, SoftTimeLimit, State
from durio.client.job_view import job_errors
from tests.unit.app.app_harness import (
    finished,
    in_state,
    real,
    record_of,
    virtual,
    working,
)

pytestmark = pytest.mark.slow  # real processes, servers or seconds


def spin_until(go: asyncio.Event) -> None:
    """Be busy in a thread; the soft limit may be raised at any step of it."""
    while not go.is_set():
        sum(range(1000))


@pytest.mark.proves("M103", "M104", "M105")
@pytest.mark.parametrize("timeout", [(270, 300), (540, 600), (300, 360), 10])
@virtual
async def test_the_soft_limit_is_raised_inside_at_its_second(app: App, timeout: object):
    seen: list[float] = []

    @app.task(name="slow", timeout=timeout)
    async def slow() -> str:
        start = app.clock.now()
        try:
            await app.clock.sleep(10_000)
        except SoftTimeLimit:
            seen.append(app.clock.now() - start)
        return "cleaned up"

    async with working(app):
        job = await slow.enqueue()
        assert (await finished(job)).state is State.DONE
        assert await job.result() == "cleaned up"
    soft = timeout[0] if isinstance(timeout, tuple) else timeout * 0.9
    assert seen == pytest.approx([soft])


@pytest.mark.proves("M108")
@virtual
async def test_a_last_word_at_the_soft_limit_is_kept(app: App):
    @app.task(name="half", timeout=(5, 10), retry=0)
    async def half(ctx: Context) -> None:
        try:
            await app.clock.sleep(100)
        except SoftTimeLimit:
            await ctx.progress(7, 10, message="saved so far")
            raise

    async with working(app):
        status = await finished(await half.enqueue())
    assert (status.state, status.last_error.type) == (State.DEAD, "SoftTimeLimit")
    assert (status.progress.done, status.progress.message) == (7, "saved so far")


@pytest.mark.proves("M103", "M105")
@virtual
async def test_the_hard_limit_abandons_what_does_not_listen(app: App):
    ends: list[str] = []
    go = asyncio.Event()

    @app.task(name="deaf", timeout=(300, 360), retry=Retry(1, base=1, jitter=False))
    async def deaf(ctx: Context) -> str:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                ends.append(f"{ctx.attempt} ignored a cancel")
        return "too late"

    async with working(app):
        start = app.clock.now()
        job = await deaf.enqueue()
        status = await in_state(job, State.SCHEDULED)
        assert status.last_error.type == "HardTimeLimit"
        assert status.last_error.at.timestamp() - start == pytest.approx(360, abs=0.1)
        status = await finished(job)
        go.set()
    assert (status.state, status.reason, status.attempt) == (State.DEAD, "exhausted", 2)
    assert "past its hard time limit" in status.last_error.message
    assert len(job_errors(await record_of(app, job))) == 2
    assert (await job.status()).state is State.DEAD  # its late word did not count
    assert (
        ends.count("1 ignored a cancel") == 2
    )  # at the soft limit and at the hard one


@pytest.mark.proves("M103")
@virtual
async def test_a_soft_limit_nobody_catches_is_a_failure_like_any_other(app: App):
    @app.task(name="slow", timeout=(5, 10), retry=Retry(1, base=1))
    async def slow() -> None:
        await app.clock.sleep(100)

    async with working(app):
        status = await finished(await slow.enqueue())
    assert (status.state, status.reason, status.attempt) == (State.DEAD, "exhausted", 2)
    assert status.last_error.type == "SoftTimeLimit"


@pytest.mark.proves("M103")
@virtual
async def test_a_soft_limit_is_seen_through_a_task_group_and_wait_for(app: App):
    cleaned: list[str] = []

    async def child(name: str) -> None:
        try:
            await app.clock.sleep(1000)
        finally:
            cleaned.append(name)

    @app.task(name="grouped", timeout=(5, 10), retry=0)
    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child("a"))
            group.create_task(child("b"))

    @app.task(name="waits", timeout=(5, 10), retry=0)
    async def waits() -> str:
        try:
            await asyncio.wait_for(child("c"), 500)
        except SoftTimeLimit:
            return "in time"
        return "never"

    @app.task(name="caught", timeout=(5, 10), retry=0)
    async def caught() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(child("d"))
        except SoftTimeLimit:
            # Nothing is left of the cancel: what follows may await.
            await app.clock.sleep(1)
            return "in time"
        return "never"

    async with working(app):
        jobs = [await task.enqueue() for task in (grouped, waits, caught)]
        ends = [await finished(job) for job in jobs]
        assert [end.state.value for end in ends] == ["dead", "done", "done"]
        assert await jobs[2].result() == "in time"
    assert ends[0].last_error.type == "SoftTimeLimit"
    assert sorted(cleaned) == ["a", "b", "c", "d"]


@pytest.mark.proves("M103")
@virtual
async def test_a_soft_limit_is_not_swallowed_by_except_exception(app: App):
    @app.task(name="broad", timeout=(5, 10), retry=0)
    async def broad() -> str:
        try:
            await app.clock.sleep(100)
        except Exception:  # noqa: BLE001 - what careless code does
            return "swallowed"
        return "never"

    async with working(app):
        status = await finished(await broad.enqueue())
    assert status.last_error.type == "SoftTimeLimit"


@pytest.mark.proves("M103")
@real
async def test_a_soft_limit_is_raised_in_a_thread(app: App):
    @app.task(name="spins", timeout=(0.05, 60), retry=0)
    def spins() -> str:
        try:
            while True:
                sum(range(100))
        except SoftTimeLimit:
            return "cleaned up"

    async with working(app):
        job = await spins.enqueue()
        assert await job.result(timeout=60) == "cleaned up"


@pytest.mark.proves("M103")
@real
async def test_a_hard_limit_abandons_a_thread_and_gives_its_slot_away(app: App):
    go = asyncio.Event()

    @app.task(name="deaf", timeout=(0.02, 0.1), retry=0)
    def deaf() -> str:
        with suppress(SoftTimeLimit):
            spin_until(go)
        spin_until(go)
        return "too late"

    @app.task(name="next")
    def next_one() -> int:
        return 1

    async with working(app) as worker:
        job = await deaf.enqueue()
        status = await finished(job)
        assert (status.state, status.last_error.type) == (State.DEAD, "HardTimeLimit")
        assert await (await next_one.enqueue()).result(timeout=60) == 1
        assert worker.hangs
        go.set()
    assert (await job.status()).state is State.DEAD


@real(settings={"worker": {"abandoned_max": 3}})
async def test_too_many_threads_that_hang_end_the_worker(app: App):
    """Nothing can end them but the end of the process."""
    go = asyncio.Event()

    @app.task(name="hangs", timeout=0.1)  # again and again: one of them may listen
    def hangs() -> None:
        with suppress(SoftTimeLimit):
            spin_until(go)
        spin_until(go)

    async with working(app) as worker:
        await hangs.options(retry=Retry(9, base=0)).enqueue_many([()] * 3)
        while worker.broken is None:
            await app.clock.sleep(0.01)
        assert worker.hangs
        go.set()


@virtual
async def test_no_limit_is_no_limit(app: App):
    @app.task(name="long", timeout=None)
    async def long(ctx: Context) -> bool:
        await app.clock.sleep(600)
        return ctx.deadline is None

    async with working(app):
        job = await long.enqueue()
        await finished(job)
        assert await job.result() is True


@virtual
async def test_limits_of_a_call_beat_those_of_its_task(app: App):
    @app.task(name="slow", timeout=(1, 2), retry=0)
    async def slow() -> str:
        await app.clock.sleep(50)
        return "done"

    async with working(app):
        job = await slow.options(timeout=(60, 70)).enqueue()
        assert (await finished(job)).state is State.DONE
        assert (await finished(await slow.enqueue())).state is State.DEAD
