import asyncio
import concurrent.futures
import os
import signal  # noqa: TID251 - the host's own business
import threading  # noqa: TID251 - the same
from collections.abc import Iterator

import pytest

from durio.host.signals import thread_stack
from durio.host.threads import LoopThread, Portal
from durio.model.errors import OperatingError, StoreUnavailable, UsageError

BOUND_SECONDS = 10


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("test-loop")
    yield thread
    assert thread.stop()


async def name_of_thread() -> str:
    return threading.current_thread().name


async def wait_for_ever(entered: threading.Event | None = None) -> None:
    if entered:
        entered.set()
    await asyncio.get_running_loop().create_future()


async def fail(error: BaseException) -> None:
    raise error


def test_runs_coroutines_in_its_own_thread(thread: LoopThread):
    first = thread.submit(name_of_thread())
    assert first.result(BOUND_SECONDS) == "test-loop"
    assert thread.thread is not None
    assert thread.thread.daemon


def test_its_loop_is_plain_asyncio(thread: LoopThread):
    async def kind() -> type:
        return type(asyncio.get_running_loop())

    assert issubclass(
        thread.submit(kind()).result(BOUND_SECONDS), asyncio.SelectorEventLoop
    )


def test_errors_reach_the_submitter(thread: LoopThread):
    error = ValueError("no")
    with pytest.raises(ValueError, match="no") as caught:
        thread.submit(fail(error)).result(BOUND_SECONDS)
    assert caught.value is error


@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt()])
def test_no_error_ends_the_loop(thread: LoopThread, error: BaseException):
    with pytest.raises(OperatingError, match=type(error).__name__) as caught:
        thread.submit(fail(error)).result(BOUND_SECONDS)
    assert caught.value.__cause__ is error
    assert thread.submit(name_of_thread()).result(BOUND_SECONDS) == "test-loop"


def test_cancel_reaches_the_coroutine(thread: LoopThread):
    entered, cancelled = threading.Event(), threading.Event()

    async def work() -> None:
        try:
            await wait_for_ever(entered)
        finally:
            cancelled.set()

    future = thread.submit(work())
    assert entered.wait(BOUND_SECONDS)
    future.cancel()
    assert cancelled.wait(BOUND_SECONDS)


def test_stop_cancels_what_runs_and_closes_the_loop():
    thread = LoopThread()
    entered = threading.Event()
    future = thread.submit(wait_for_ever(entered))
    assert entered.wait(BOUND_SECONDS)
    assert thread.stop()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(0)
    assert thread.loop is not None
    assert thread.loop.is_closed()
    assert not thread.futures
    assert thread.stop()


def test_what_is_submitted_just_before_a_stop_is_answered():
    thread = LoopThread()
    futures = [thread.submit(wait_for_ever()) for _ in range(100)]
    assert thread.stop()
    assert all(future.cancelled() for future in futures)


def test_stop_is_bounded():
    thread = LoopThread()
    entered, opened = threading.Event(), threading.Event()

    async def block() -> None:
        entered.set()
        opened.wait(BOUND_SECONDS)

    thread.submit(block())
    assert entered.wait(BOUND_SECONDS)
    assert not thread.stop(join_seconds=0.01)
    opened.set()
    assert thread.stop()


def test_a_stopped_thread_refuses_work():
    thread = LoopThread()
    assert thread.stop()
    with pytest.raises(OperatingError, match="was stopped"):
        thread.submit(name_of_thread())


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_makes_its_own_thread(thread: LoopThread):
    assert thread.submit(name_of_thread()).result(BOUND_SECONDS)
    with thread.lock:
        child = os.fork()
        if child == 0:
            try:
                answer = thread.submit(name_of_thread()).result(BOUND_SECONDS)
                is_fine = answer == "test-loop" and thread.stop()
            finally:
                os._exit(0 if is_fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert thread.submit(name_of_thread()).result(BOUND_SECONDS) == "test-loop"


def test_portal_returns_results_and_errors(thread: LoopThread):
    portal = Portal(thread)
    assert portal.run(name_of_thread(), BOUND_SECONDS) == "test-loop"
    with pytest.raises(TimeoutError, match="own"):
        portal.run(fail(TimeoutError("its own")), BOUND_SECONDS)


def test_portal_refuses_a_running_loop(thread: LoopThread):
    async def main() -> None:
        with pytest.raises(UsageError, match="running event loop") as caught:
            Portal(thread).run(name_of_thread(), BOUND_SECONDS)
        assert "`await` and the call without `_sync`" in caught.value.cure

    asyncio.run(main())


def test_portal_waits_no_longer_than_asked(thread: LoopThread):
    cancelled = threading.Event()

    async def work() -> None:
        try:
            await wait_for_ever()
        finally:
            cancelled.set()

    with pytest.raises(StoreUnavailable, match=r"0\.01 s") as caught:
        Portal(thread).run(work(), 0.01)
    assert caught.value.unknown
    assert cancelled.wait(BOUND_SECONDS)


def test_portal_cancels_on_ctrl_c(thread: LoopThread):
    cancelled = threading.Event()
    main = threading.get_ident()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        try:
            while "in result" not in thread_stack(main):  # until the caller waits
                turn = loop.create_future()
                loop.call_later(0.001, turn.set_result, None)
                await turn
            signal.pthread_kill(main, signal.SIGINT)
            await wait_for_ever()
        finally:
            cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        Portal(thread).run(work(), BOUND_SECONDS)
    assert cancelled.wait(BOUND_SECONDS)
