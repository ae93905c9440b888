import asyncio
import contextvars
import io
import logging  # noqa: TID251 - a thread that logs is interrupted
import sys
import threading  # noqa: TID251 - the host's own business
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from durio.host.executors import ThreadExecutor
from durio.model.errors import OperatingError, UsageError
from durio.model.settings import LogSettings
from durio.ports.executor import Executor, SoftTimeLimit, ThreadCallHandle, ThreadResult
from durio.telemetry.log import StreamLog

BOUND_SECONDS = 10


def run(main: Callable[[ThreadExecutor], Any], threads_max: int = 4) -> Any:
    executor = ThreadExecutor(threads_max)

    async def bounded() -> Any:
        async with asyncio.timeout(BOUND_SECONDS):
            return await main(executor)

    try:
        return asyncio.run(bounded())
    finally:
        executor.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something a thread does; the test's own bound ends it."""
    loop = asyncio.get_running_loop()
    while not condition():
        turn = loop.create_future()
        loop.call_later(0.001, turn.set_result, None)
        await turn


def counts(executor: ThreadExecutor) -> tuple[int, int, int, int]:
    """Threads that count, idle ones, waiting calls, abandoned threads."""
    idle, waiting = len(executor.idle), len(executor.waiting)
    return executor.counted, idle, waiting, executor.abandoned


class Gate:
    """A function that stays in its thread, in Python, until it is let through."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> str:
        self.entered.set()
        while not self.opened.wait(0.001):
            pass
        return "through"

    async def wait_entered(self) -> None:
        await until(self.entered.is_set)


def test_returns_values_and_errors():
    error = ValueError("no")

    def fail() -> None:
        raise error

    async def main(executor: Executor) -> tuple[ThreadResult, ThreadResult]:
        good = executor.start(lambda: 42)
        bad = executor.start(fail)
        return await good.future, await bad.future

    good, bad = run(main)
    assert good == ThreadResult(42, None)
    assert bad.error is error


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), SoftTimeLimit()]
)
def test_no_error_of_a_task_stops_thread_or_loop(error: BaseException):
    def fail() -> None:
        raise error

    async def main(executor: ThreadExecutor) -> list[ThreadResult]:
        first = await executor.start(fail).future
        second = await executor.start(threading.get_ident).future
        assert counts(executor) == (1, 1, 0, 0)
        return [first, second]

    first, second = run(main)
    assert first.error is error
    assert second.error is None


def test_runs_in_a_copy_of_the_callers_context():
    variable = contextvars.ContextVar("variable", default="outside")

    def look() -> str:
        seen = variable.get()
        variable.set("changed by the task")
        return seen

    async def main(executor: ThreadExecutor) -> tuple[Any, str]:
        variable.set("inside")
        ended = await executor.start(look).future
        return ended.value, variable.get()

    assert run(main) == ("inside", "inside")


def test_idle_threads_are_used_again_last_first():
    async def main(executor: ThreadExecutor) -> None:
        gates = [Gate(), Gate()]
        calls = [executor.start(gate) for gate in gates]
        for gate in gates:
            await gate.wait_entered()
        gates[0].opened.set()
        await calls[0].future
        gates[1].opened.set()
        await calls[1].future
        last = calls[1].thread_id
        for _ in range(20):
            assert (await executor.start(threading.get_ident).future).value == last
        assert counts(executor) == (2, 2, 0, 0)

    run(main)


def test_reports_the_first_begin_and_the_last_end():
    async def main(executor: ThreadExecutor) -> None:
        told: list[bool] = []
        executor.on_busy = told.append
        gates = [Gate(), Gate()]
        calls = [executor.start(gate) for gate in gates]
        for gate, call in zip(gates, calls, strict=True):
            await gate.wait_entered()
            assert told == [True]
            gate.opened.set()
            await call.future
        assert told == [True, False]
        hung = Gate()
        abandoned = executor.start(hung)
        await hung.wait_entered()
        abandoned.abandon()
        await executor.start(threading.get_ident).future
        assert told == [True, False, True], "abandoned code still runs"
        hung.opened.set()
        await abandoned.future
        assert told == [True, False, True, False]

    run(main)


def test_calls_beyond_the_threads_wait_in_line():
    async def main(executor: ThreadExecutor) -> list[Any]:
        gate = Gate()
        first = executor.start(gate)
        await gate.wait_entered()
        order: list[int] = []
        later = [executor.start(lambda n=n: order.append(n)) for n in range(5)]
        assert counts(executor) == (1, 0, 5, 0)
        gate.opened.set()
        await asyncio.gather(first.future, *(call.future for call in later))
        return order

    assert run(main, threads_max=1) == [0, 1, 2, 3, 4]


def test_the_line_has_an_end():
    async def main(executor: ThreadExecutor) -> None:
        executor.waiting_max = 1
        gate = Gate()
        call = executor.start(gate)
        executor.start(gate)
        with pytest.raises(OperatingError, match="1 calls wait"):
            executor.start(gate)
        gate.opened.set()
        await call.future

    run(main, threads_max=1)


def test_interrupt_is_raised_inside_the_function():
    cleaned: list[str] = []

    async def main(executor: ThreadExecutor) -> ThreadResult:
        gate = Gate()

        def task() -> None:
            try:
                gate()
            finally:
                cleaned.append("yes")

        call = executor.start(task)
        await gate.wait_entered()
        assert call.interrupt(SoftTimeLimit)
        ended = await call.future
        assert not call.interrupt(SoftTimeLimit)
        return ended

    assert isinstance(run(main).error, SoftTimeLimit)
    assert cleaned == ["yes"]


def test_interrupt_of_a_waiting_call_keeps_it_from_running():
    async def main(executor: ThreadExecutor) -> ThreadResult:
        gate, ran = Gate(), Gate()
        first = executor.start(gate)
        second = executor.start(ran)
        assert second.interrupt(SoftTimeLimit)
        ended = await second.future
        gate.opened.set()
        await first.future
        assert not ran.entered.is_set()
        assert not executor.waiting
        return ended

    assert isinstance(run(main, threads_max=1).error, SoftTimeLimit)


def test_an_interrupt_never_hits_the_next_job_of_the_thread():
    """Interrupts race with the end of short functions, from another thread."""
    target: list[ThreadCallHandle] = []
    over = threading.Event()

    def shoot() -> None:
        while not over.is_set():
            for call in target[-1:]:
                call.interrupt(SoftTimeLimit)

    def short() -> str:
        return "".join(str(n) for n in range(20))

    async def main(executor: ThreadExecutor) -> tuple[int, int]:
        hit = innocent = 0
        for turn in range(50_000):
            if hit and turn >= 500:
                break
            guilty = executor.start(short)
            target.append(guilty)
            hit += (await guilty.future).error is not None
            # The marksman goes on shooting at the call that has ended.
            ended = await executor.start(short).future
            innocent += ended.error is not None
        assert executor.counted == 1
        return hit, innocent

    marksman = threading.Thread(target=shoot)
    interval_seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # many switches, many chances to go wrong
    marksman.start()
    try:
        hit, innocent = run(main, threads_max=1)
    finally:
        sys.setswitchinterval(interval_seconds)
        over.set()
        marksman.join()
    assert hit > 0
    assert innocent == 0


def test_an_abandoned_thread_no_longer_counts_and_goes_at_its_end():
    async def main(executor: ThreadExecutor) -> None:
        hung = Gate()
        call = executor.start(hung)
        await hung.wait_entered()
        behind = executor.start(lambda: "not held up")
        call.abandon()
        call.abandon()
        assert (await behind.future).value == "not held up"
        assert counts(executor) == (1, 1, 0, 1)
        hung.opened.set()
        await call.future
        assert counts(executor) == (1, 1, 0, 0)
        call.abandon()
        assert counts(executor) == (1, 1, 0, 0)

    run(main, threads_max=1)


def test_abandoning_a_waiting_call_drops_it():
    async def main(executor: ThreadExecutor) -> None:
        gate = Gate()
        first = executor.start(gate)
        second = executor.start(gate)
        second.abandon()
        assert isinstance((await second.future).error, asyncio.CancelledError)
        gate.opened.set()
        await first.future
        assert counts(executor) == (1, 1, 0, 0)

    run(main, threads_max=1)


def test_completions_gather_while_the_loop_is_busy():
    async def main(executor: ThreadExecutor) -> int:
        loop = asyncio.get_running_loop()
        wakeups = 0
        ring = loop.call_soon_threadsafe

        def counted(*args: Any) -> Any:
            nonlocal wakeups
            wakeups += 1
            return ring(*args)

        loop.call_soon_threadsafe = counted
        finished = [threading.Event() for _ in range(50)]
        calls = [executor.start(event.set) for event in finished]
        for event in finished:  # the loop does nothing else meanwhile
            assert event.wait(BOUND_SECONDS)
        await asyncio.gather(*(call.future for call in calls))
        return wakeups

    # One wakeup, or two when two threads end in the same instant.
    assert run(main) < 10


def test_a_closed_loop_is_no_trouble():
    gate = Gate()

    async def main(executor: ThreadExecutor) -> ThreadCallHandle:
        executor.start(gate)
        await gate.wait_entered()

    executor = ThreadExecutor(1)
    asyncio.run(main(executor))
    gate.opened.set()

    async def again() -> Any:
        return (await executor.start(lambda: "fine").future).value

    assert asyncio.run(again()) == "fine"
    executor.close()


def test_close_lets_threads_go_and_refuses_calls():
    async def main(executor: ThreadExecutor) -> None:
        gate = Gate()
        busy, waiting = executor.start(gate), executor.start(gate)
        await gate.wait_entered()
        executor.close()
        assert isinstance((await waiting.future).error, asyncio.CancelledError)
        with pytest.raises(UsageError):
            executor.start(gate)
        gate.opened.set()
        assert (await busy.future).value == "through"
        assert counts(executor) == (0, 0, 0, 0)

    run(main, threads_max=1)


def test_an_idle_thread_keeps_nothing_of_its_last_job():
    class Payload:
        pass

    async def main(executor: ThreadExecutor) -> None:
        payload = Payload()
        gone = weakref.ref(payload)

        def fail(held: Payload) -> None:
            raise ValueError(held)

        call = executor.start(lambda held=payload: fail(held))
        assert (await call.future).error is not None
        del payload, call
        await until(lambda: gone() is None)

    run(main)


def where(thread: int) -> str:
    """The function that a thread is in."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else frame.f_code.co_name


BEFORE_3_13 = sys.version_info < (3, 13)  # later, `Handler.handle` has `with self.lock`


@pytest.mark.parametrize(
    ("handler", "waits_in"),
    [
        (logging.StreamHandler(io.StringIO()), "acquire" if BEFORE_3_13 else "handle"),
        (StreamLog(LogSettings(), io.StringIO()), "emit" if BEFORE_3_13 else "handle"),
    ],
    ids=["any", "ours"],
)
def test_an_interrupt_never_leaves_a_lock_of_logging_taken(
    handler: logging.Handler, waits_in: str
):
    """A thread that waits for the log would be hit with its lock in hand."""
    lock: Any = handler.lock
    threads: list[int] = []
    record = logging.makeLogRecord({"msg": "m"})

    def log_on() -> None:
        threads.append(threading.get_ident())
        while True:
            handler.handle(record)

    async def main(executor: ThreadExecutor) -> BaseException | None:
        with lock:
            call = executor.start(log_on)
            await until(lambda: bool(threads) and where(threads[0]) == waits_in)
            assert call.interrupt(SoftTimeLimit)
        error = (await call.future).error
        assert lock.acquire(blocking=False)
        lock.release()
        return error

    assert isinstance(run(main), SoftTimeLimit)
