import asyncio
import threading  # noqa: TID251 - real threads beside virtual time
from collections.abc import Callable

import pytest

from durio.host.executors import ThreadExecutor
from durio.ports.clock import Clock
from durio.testing import clock as virtual
from durio.testing.clock import Stuck, VirtualClock, run_virtual

DAY_SECONDS = 24 * 3600.0


def test_thirty_days_pass_at_once():
    async def main(clock: Clock) -> tuple[float, float]:
        wall, monotonic = clock.now(), clock.monotonic()
        await clock.sleep(30 * DAY_SECONDS)
        return clock.now() - wall, clock.monotonic() - monotonic

    assert run_virtual(main) == (30 * DAY_SECONDS, 30 * DAY_SECONDS)


def test_timers_of_all_kinds_run_in_order():
    async def main(clock: VirtualClock) -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        start = clock.monotonic()

        async def after(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            seen.append((name, clock.monotonic() - start))

        async with asyncio.TaskGroup() as group:
            group.create_task(after("year", 365 * DAY_SECONDS))
            group.create_task(after("hour", 3600))
            group.create_task(after("now", 0))
            group.create_task(after("past", -5))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await clock.sleep(61)
            seen.append(("timeout", clock.monotonic() - start))
        return seen

    assert run_virtual(main) == [
        ("now", 0),
        ("past", 0),
        ("timeout", 60),
        ("hour", 3600),
        ("year", 365 * DAY_SECONDS),
    ]


def test_the_same_seed_gives_the_same_world():
    async def main(clock: VirtualClock) -> tuple[float, list[bytes], list[float]]:
        ids = [clock.new_id() for _ in range(5000)]
        await clock.sleep(1)
        ids += [clock.new_id() for _ in range(3)]
        assert ids == sorted(set(ids))
        return clock.now(), ids, [clock.random() for _ in range(10)]

    assert run_virtual(main, seed=1) == run_virtual(main, seed=1)
    assert run_virtual(main, seed=1) != run_virtual(main, seed=2)


def test_the_wall_clock_can_be_set():
    async def main(clock: VirtualClock) -> None:
        before, monotonic = clock.new_id(), clock.monotonic()
        clock.step(-3600)
        assert clock.now() == virtual.EPOCH - 3600
        assert clock.monotonic() == monotonic
        assert clock.new_id() > before
        assert clock.boot_id()

    run_virtual(main)


def test_a_cancelled_sleep_leaves_no_timer():
    async def main(clock: VirtualClock) -> float:
        start = clock.monotonic()
        async with asyncio.TaskGroup() as group:
            sleeper = group.create_task(clock.sleep(10))
            # Due in the very moment of the cancel.
            clock.loop.call_later(10, sleeper.cancel)
        async with asyncio.TaskGroup() as group:
            sleeper = group.create_task(clock.sleep(DAY_SECONDS))
            await clock.sleep(5)
            sleeper.cancel()
        return clock.monotonic() - start

    assert run_virtual(main) == 15


def test_a_deadlock_is_told_with_all_stacks():
    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    async def main(clock: VirtualClock) -> None:
        await clock.sleep(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_godot(), name="estragon")
            group.create_task(wait_for_godot(), name="vladimir")

    with pytest.raises(Stuck, match="simulated deadlock") as caught:
        run_virtual(main)
    text = str(caught.value)
    assert "estragon" in text
    assert "vladimir" in text
    assert text.count("in wait_for_godot") == 2
    assert text.count("await asyncio.Event().wait()") == 2
    assert "in wait\n" in text  # the innermost await, inside asyncio


def in_executor(threads: ThreadExecutor, function: Callable[[], object]):
    return threads.start(function).future


def test_time_stands_still_while_a_thread_is_waited_for():
    turn = threading.Barrier(2)

    async def main(clock: VirtualClock) -> float:
        threads = ThreadExecutor(1)
        async with asyncio.TaskGroup() as group:
            sleeper = group.create_task(clock.sleep(DAY_SECONDS))
            start = clock.monotonic()
            helper = threading.Thread(target=turn.wait)
            helper.start()
            with clock.held():
                await in_executor(threads, turn.wait)
            helper.join()
            took = clock.monotonic() - start
            assert not sleeper.done()
        threads.close()
        return took

    assert run_virtual(main) == 0


def test_a_sleep_of_the_holder_looks_at_the_thread_in_real_time():
    opened = threading.Event()

    async def main(clock: VirtualClock) -> float:
        start = clock.monotonic()
        helper = threading.Thread(target=opened.wait)
        helper.start()
        fired: list[str] = []
        clock.loop.call_later(0.001, fired.append, "somebody else's timer")
        with clock.held():
            await clock.sleep(0.005)
            opened.set()
            while helper.is_alive():
                await clock.sleep(0.001)
        took_seconds = clock.monotonic() - start
        assert not fired
        assert not clock.loop.jumping.real_sleeps
        return took_seconds

    assert run_virtual(main) == 0


def test_the_loops_own_executor_is_waited_for():
    async def main(clock: VirtualClock) -> tuple[int, float]:
        start = clock.monotonic()
        clock.loop.call_later(1, print)
        answer = await clock.loop.run_in_executor(None, max, 1, 2)
        return answer, clock.monotonic() - start

    assert run_virtual(main) == (2, 0)


def test_a_thread_that_never_answers_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(virtual, "HELD_SECONDS_MAX", 0.01)

    async def main(clock: VirtualClock) -> None:
        with clock.held():
            await asyncio.Event().wait()

    with pytest.raises(Stuck, match="timers do not run while it is held"):
        run_virtual(main)


def test_errors_and_values_come_out():
    async def fail(clock: VirtualClock) -> None:
        await clock.sleep(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_virtual(fail)
