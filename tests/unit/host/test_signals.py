import asyncio
import io
import os
import re
import signal  # noqa: TID251 - the host's own business
import subprocess  # noqa: TID251 - the same
import sys
import threading  # noqa: TID251 - the same
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from durio.host import signals
from durio.host.signals import (
    Signals,
    host_name,
    process_name,
    task_stack,
    thread_stack,
)

pytestmark = pytest.mark.slow  # real processes, servers or seconds

BOUND_SECONDS = 10
LOOPS = [asyncio.SelectorEventLoop, uvloop.new_event_loop]


def closed_stream() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


async def receive(got: list[tuple[str, int]], count: int) -> None:
    arrived = asyncio.Event()

    def note(name: str, number: int) -> None:
        got.append((name, number))
        arrived.set()

    async with Signals(note), asyncio.timeout(BOUND_SECONDS):
        for each in [signal.SIGTERM, signal.SIGINT, signal.SIGTERM][:count]:
            arrived.clear()
            os.kill(os.getpid(), each)  # noqa: TID251 - to ourselves
            await arrived.wait()


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_signals_become_numbered_calls(loop_factory: Callable[[], Any]):
    got: list[tuple[str, int]] = []
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(receive(got, 3))
    assert got == [("SIGTERM", 1), ("SIGINT", 2), ("SIGTERM", 3)]


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_previous_handlers_come_back(loop_factory: Callable[[], Any]):
    def mine(*_: object) -> None:
        """Somebody else's handler."""

    before = [signal.signal(each, mine) for each in (signal.SIGTERM, signal.SIGINT)]
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(receive([], 1))
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


def test_outside_the_main_thread_nothing_happens():
    async def main() -> bool:
        taken = Signals(print)
        is_installed = taken.install()
        taken.uninstall()
        return is_installed

    before = signal.getsignal(signal.SIGTERM)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(main())))
    thread.start()
    thread.join()
    assert answers == [False]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_moment_is_known_while_the_loop_is_blocked(loop_factory: Callable[[], Any]):
    got: list[tuple[str, int]] = []

    async def main() -> None:
        async with Signals(lambda *told: got.append(told)) as taken:
            for number in (1, 2):
                os.kill(os.getpid(), signal.SIGTERM)  # noqa: TID251 - to ourselves
                while len(taken.received) < number:  # the loop has no turn in here
                    pass
            assert not got
            assert [name for name, _ in taken.received] == ["SIGTERM", "SIGTERM"]
            async with asyncio.timeout(BOUND_SECONDS):
                while len(got) < 2:  # noqa: ASYNC110 - the loop alone can do it
                    await asyncio.sleep(0)  # noqa: TID251 - a turn

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    assert got == [("SIGTERM", 1), ("SIGTERM", 2)]


def test_an_ignored_hangup_stays_ignored():
    async def main() -> None:
        async with Signals(print, signals.STOP_SIGNALS) as taken:
            os.kill(os.getpid(), signal.SIGHUP)  # noqa: TID251 - to ourselves
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert not taken.received

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asyncio.run(main())
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


LATE = """
import asyncio, atexit, ctypes, os, signal, sys
from durio.host.signals import Signals

def strike(): os.kill(os.getpid(), signal.SIGTERM)

class Last:
    def __del__(self): strike()

async def main():
    heard = asyncio.Event()
    async with Signals(lambda *_: heard.set(), is_last=True) as taken:
        strike()
        await heard.wait()
        taken.exit_code = 15

asyncio.run(main())
{when}
sys.exit(15)
"""
# Called by the C library with the exit code, when Python is gone: 15 is SIGTERM.
AT_THE_VERY_END = """
libc = ctypes.CDLL(None)
libc.on_exit(getattr(libc, "raise"), None)
"""


@pytest.mark.parametrize(
    "when",
    ["strike()", "atexit.register(strike)", "sys.last = Last()", AT_THE_VERY_END],
)
def test_a_late_signal_does_not_change_how_it_ends(when: str):
    """After the work, in exit handlers, while the interpreter is torn down."""
    done = subprocess.run(
        [sys.executable, "-c", LATE.format(when=when)],
        capture_output=True,
        check=False,
        timeout=BOUND_SECONDS,
    )
    assert done.returncode == 15, done.stderr


def test_process_name():
    assert process_name() == (host_name(), os.getpid())
    assert str(process_name()) == f"{host_name()}/{os.getpid()}"
    assert 0 < len(host_name()) <= signals.HOST_NAME_CHARS_MAX


def test_dump_shows_where_another_thread_is():
    entered, opened = threading.Event(), threading.Event()

    def guilty_function() -> None:
        entered.set()
        opened.wait(BOUND_SECONDS)

    thread = threading.Thread(target=guilty_function)
    thread.start()
    assert entered.wait(BOUND_SECONDS)
    text = thread_stack(thread.ident or 0)
    opened.set()
    thread.join()
    assert "in guilty_function" in text
    assert "no thread" in thread_stack(-1)


def test_dump_is_bounded_and_keeps_the_inner_end():
    def innermost() -> str:
        return thread_stack(threading.get_ident())

    def deep(level: int) -> str:
        return deep(level - 1) if level else innermost()

    text = deep(500)
    assert len(text) <= signals.STACK_CHARS_MAX
    assert "in innermost" in text


@pytest.mark.parametrize("stream", [None, closed_stream()])
def test_flush_takes_any_stream(stream: Any, monkeypatch: pytest.MonkeyPatch):
    said = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", said)
    signals.flush_streams()
    assert not said.closed


@pytest.mark.parametrize(
    ("trouble", "heard"), [("pass", b"said"), ("sys.stdout.flush = wait", b"")]
)
def test_end_process_flushes_and_goes(
    trouble: str, heard: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    program = (
        "import atexit, sys, threading\n"
        "from durio.host import signals\n"
        "wait = threading.Event().wait\n"
        "atexit.register(print, 'exit handler')\n"
        "sys.stdout.write('said')\n"
        f"{trouble}\n"
        "signals.FLUSH_SECONDS /= 10\n"
        "signals.end_process(70)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=False,
        timeout=BOUND_SECONDS,
    )
    assert done.returncode == 70
    assert done.stdout == heard


def test_the_frames_of_a_blocking_task_come_first():
    async def users_coroutine() -> str:
        return users_function()

    def users_function() -> str:
        return task_stack(threading.get_ident())

    async def started() -> str:
        async with asyncio.TaskGroup() as group:
            return await group.create_task(users_coroutine())

    first, *_, last = asyncio.run(started()).splitlines()
    assert "in users_coroutine" in first
    assert re.fullmatch(r"  \(called through \d+ frames of asyncio and Durio\)", last)


def test_a_stack_without_a_loop_is_whole():
    text = task_stack(threading.get_ident())
    assert "in test_a_stack_without_a_loop_is_whole" in text
    assert "called through" not in text
    assert "no thread" in task_stack(-1)
