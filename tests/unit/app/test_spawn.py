"""`app.spawn`: tracked, bounded, told about, waited for; and never stored."""

import asyncio
import gc
import warnings
import weakref
from contextlib import suppress
from typing import Any

import pytest

from durio import App, State
from durio.errors import SpawnFull, UsageError
from durio.testing.clock import VirtualClock, run_virtual
from tests.unit.app.app_harness import MEMORY, finished, records, virtual, working


@virtual
async def test_it_runs_and_its_task_gives_the_value(app: App):
    async def double(number: int) -> int:
        await app.clock.sleep(1)
        return number * 2

    task = app.spawn(double(21), name="doubling")
    assert isinstance(task, asyncio.Task)
    assert task.get_name() == "doubling"
    assert await task == 42
    assert await records(app) == []  # nothing of it is stored


@virtual
async def test_it_is_named_after_its_function(app: App):
    async def warm_up() -> None: ...

    assert "warm_up" in app.spawn(warm_up()).get_name()


@virtual
async def test_nobody_else_need_hold_it(app: App):
    """A loop holds its tasks only weakly; one in a cycle may be collected."""
    ended: list[int] = []

    async def lonely() -> None:
        loop = asyncio.get_running_loop()
        nobody: asyncio.Future[None] = loop.create_future()
        loop.call_later(5, wake, weakref.ref(nobody))
        await nobody
        ended.append(1)

    def wake(found: "weakref.ref[asyncio.Future[None]]") -> None:
        future = found()
        if future is not None:
            future.set_result(None)

    app.spawn(lonely())
    await app.clock.sleep(1)
    gc.collect()
    await app.clock.sleep(10)
    assert ended == [1]


@virtual
async def test_an_error_is_told_with_its_stack(
    app: App, caplog: pytest.LogCaptureFixture
):
    async def break_down() -> None:
        raise ValueError("no such bucket")

    with caplog.at_level("ERROR", logger="durio"):
        app.spawn(break_down(), name="upload")
        await app.clock.sleep(1)
    told = [r for r in caplog.records if getattr(r, "event", "") == "spawn.failed"]
    assert len(told) == 1
    assert "upload" in told[0].getMessage()
    assert "ValueError: no such bucket" in told[0].getMessage()
    assert "break_down" in told[0].getMessage()


@virtual(settings={"worker": {"spawned_max": 3}})
async def test_so_many_at_once_and_no_more(app: App):
    async def stay() -> None:
        await app.clock.sleep(10)

    first = [app.spawn(stay()) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also "never awaited"
        with pytest.raises(SpawnFull, match="3 spawned calls") as caught:
            app.spawn(stay())
        gc.collect()
    assert caught.value.values["limit"] == 3
    await asyncio.gather(*first)
    await app.spawn(stay())  # there is room again


def test_closing_waits_for_it_within_the_grace() -> None:
    ended: list[str] = []

    async def main(clock: VirtualClock) -> None:
        async def work(name: str, seconds: float) -> None:
            try:
                await clock.sleep(seconds)
                ended.append(name)
            except asyncio.CancelledError:
                ended.append(f"{name} cancelled")
                raise

        settings = {"worker": {"grace_seconds": 10}}
        app = App(MEMORY, clock=clock, settings=settings)
        async with app:
            app.spawn(work("short", 3))
            app.spawn(work("long", 1000))
            began = clock.now()
        assert 10 <= clock.now() - began < 12

    run_virtual(main)
    assert ended == ["short", "long cancelled"]


def test_what_ignores_its_cancel_is_not_waited_for() -> None:
    async def main(clock: VirtualClock) -> None:
        async def deaf() -> None:
            while True:
                with suppress(asyncio.CancelledError):
                    await clock.sleep(1000)
                    return

        app = App(MEMORY, clock=clock, settings={"worker": {"grace_seconds": 1}})
        async with app:
            task = app.spawn(deaf())
            began = clock.now()
        assert clock.now() - began < 5
        await task

    run_virtual(main)


@virtual
async def test_who_closes_the_app_may_be_spawned_itself(app: App):
    async def close() -> str:
        await app.close()
        return "closed"

    assert await app.spawn(close()) == "closed"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (len, "the function len"),
        (42, "a int"),
        (None, "a NoneType"),
        ([1], "a list"),
    ],
)
@virtual
async def test_only_a_coroutine_can_be_spawned(app: App, given: Any, told: str):
    with pytest.raises(UsageError, match=f"takes a coroutine, not {told}"):
        app.spawn(given)


def test_without_a_loop_it_is_refused_and_python_does_not_complain() -> None:
    async def work() -> None: ...

    app = App(MEMORY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UsageError, match="needs a running event loop"):
            app.spawn(work())
        gc.collect()


@virtual
async def test_work_that_a_job_spawned_is_not_part_of_the_job(app: App):
    """It holds no slot: it may wait for a job, and outlive its own."""
    seen: list[int] = []

    @app.task(name="quick")
    async def quick() -> int:
        return 7

    async def follow() -> None:
        seen.append(await (await quick.enqueue()).result())

    @app.task(name="starts")
    async def starts() -> None:
        app.spawn(follow())

    async with working(app):
        status = await finished(await starts.enqueue())
        for _ in range(100):
            await app.clock.sleep(0.1)
    assert (status.state, seen) == (State.DONE, [7])
