"""This process: the signals that request a stop, its name, its stacks and its end."""

import asyncio
import atexit
import importlib
import os
import platform
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple, Self, cast, final

from durio.model.quantities import counted
from durio.ports.executor import ThreadStack

HOST_NAME_CHARS_MAX = 64
STACK_FRAMES_MAX = 40
STACK_CHARS_MAX = 8_000
FLUSH_SECONDS = 1.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RECEIVED_MAX = 16  # two are enough
WAKER_READ_BYTES = 4096
EXIT_TERMINATED = 143
OUR_FILES = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120
# The files whose frames call the user's code on an event loop.
CALLERS = (
    asyncio.events.__file__,
    *(os.path.join(OUR_FILES, "worker", f"{n}.py") for n in ("attempt", "inflight")),  # noqa: PTH118
)


@final
class Signals:
    """Calls back on the loop for signals that request a stop: `callback("SIGTERM", 1)`.

    The number counts signals of all kinds from 1, so that the second can be told from the
    first. The time of each is in `received` as soon as it arrives, even while the loop is
    blocked. SIGHUP stays ignored if it was ignored before, as under nohup. Outside the main
    thread Python allows no signal handlers, and this does nothing: the owner of the main
    thread (a web server) decides when to stop.

    `is_last`: the process ends after this. If a signal was received, any later one ends the
    process at once with `exit_code`; the default action of a signal never applies.
    """

    def __init__(
        self,
        callback: Callable[[str, int], object],
        wanted: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT),
        *,
        is_last: bool = False,
    ) -> None:
        self.callback = callback
        self.wanted = wanted
        self.count = 0
        self.received: list[tuple[str, float]] = []
        self.is_last = is_last
        self.exit_code = EXIT_TERMINATED
        self.loop: asyncio.AbstractEventLoop | None = None
        self.previous: dict[signal.Signals, Any] = {}
        self.waker: LoopWaker | None = None

    def install(self) -> bool:
        """Install the handlers, on the running loop; return False outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self.loop = asyncio.get_running_loop()
        self.waker = LoopWaker(self.loop)
        for each in self.wanted:
            before = signal.getsignal(each)
            if each is not signal.SIGHUP or before is not signal.SIG_IGN:
                self.previous[each] = before
                signal.signal(each, self.on_signal)
        return True

    def uninstall(self) -> None:
        """Restore the earlier handlers; with `is_last` a signal ends the process."""
        if self.loop is None or self.waker is None:
            return
        self.loop = None
        self.waker.close()
        is_ending = self.is_last and bool(self.received)
        for each, handler in self.previous.items():
            if is_ending:
                signal.signal(each, self.exit_now)
            # None: set by C code, and Python cannot restore it
            elif handler is not None:
                signal.signal(each, handler)
        if is_ending:
            # At exit the interpreter restores the default action, which is fatal.
            atexit.register(ignore_signals, tuple(self.previous))
        self.previous.clear()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Record a signal; runs in the main thread, between any two instructions."""
        del frame
        each = signal.Signals(number)
        if len(self.received) < RECEIVED_MAX:
            now = time.clock_gettime(time.CLOCK_MONOTONIC)
            self.received.append((each.name, now))
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.run_callback, each)

    def run_callback(self, each: signal.Signals) -> None:
        self.count += 1
        self.callback(each.name, self.count)

    def exit_now(self, number: int, frame: FrameType | None) -> None:
        """End the process: all work is done, and another signal has arrived."""
        del number, frame
        end_process(self.exit_code)

    async def __aenter__(self) -> Self:
        self.install()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.uninstall()


@final
class LoopWaker:
    """Wakes a loop for a signal that arrives just before the loop goes to sleep.

    Without it the signal would be handled only when the loop wakes up for another
    reason. A loop with its own wakeup descriptor, such as uvloop's, keeps it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.receiver, self.sender = socket.socketpair()
        self.receiver.setblocking(False)
        self.sender.setblocking(False)
        number = self.sender.fileno()
        self.before = signal.set_wakeup_fd(number, warn_on_full_buffer=False)
        if self.before != -1:
            signal.set_wakeup_fd(self.before, warn_on_full_buffer=False)
        loop.add_reader(self.receiver, self.drain)

    def drain(self) -> None:
        """Discard the bytes, because only the wakeup matters."""
        with suppress(OSError):
            self.receiver.recv(WAKER_READ_BYTES)

    def close(self) -> None:
        if self.before == -1:
            signal.set_wakeup_fd(-1)
        self.loop.remove_reader(self.receiver)
        self.receiver.close()
        self.sender.close()


def on_child_end(callback: Callable[[], object]) -> Callable[[], None]:
    """Call back on the running loop when a child may have ended; return the undo."""
    loop = asyncio.get_running_loop()

    def note(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)

    before = signal.signal(signal.SIGCHLD, note)
    return lambda: cast("None", signal.signal(signal.SIGCHLD, before))


@contextmanager
def interruptible() -> Generator[None]:
    """Treat SIGTERM as Ctrl-C, so that cleanup runs; for the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def ignore_signals(wanted: tuple[signal.Signals, ...]) -> None:
    for each in wanted:
        signal.signal(each, signal.SIG_IGN)


class ProcessName(NamedTuple):
    """The name of this process among the workers; its `str` is `host/pid`."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}"


def process_name() -> ProcessName:
    """Return the name of this process, as people and the store use it."""
    return ProcessName(host_name(), os.getpid())


def host_name() -> str:
    return platform.node()[:HOST_NAME_CHARS_MAX] or "localhost"


def user_at_host() -> str:
    """Return the user and host of this process, such as `ann@web-1`."""
    try:
        user = importlib.import_module("getpass").getuser()  # not needed to enqueue
    except (KeyError, OSError, ImportError):  # a container without a user database
        user = f"uid-{os.getuid()}"
    return f"{user}@{host_name()}"


def thread_stack(thread_id: int) -> str:
    """Return the live Python stack of one thread, innermost last; outer frames are cut."""
    # Despite its name, the only way to see another thread's frames.
    frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    frame = frames.get(thread_id)
    if frame is None:
        return f"no thread {thread_id}\n"
    stack = traceback.extract_stack(frame, limit=STACK_FRAMES_MAX)
    return "".join(traceback.format_list(stack))[-STACK_CHARS_MAX:]


def task_stack(thread_id: int) -> str:
    """Return the frames of a thread's stack that an event loop called: the user's.

    One last line has the number of the other frames, of the loop and of Durio.
    """
    frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    frame = frames.get(thread_id)
    stack = list(traceback.extract_stack(frame)) if frame else []
    called = [n for n, each in enumerate(stack) if each.filename in CALLERS]
    first = called[-1] + 1 if called else 0
    while first < len(stack) and stack[first].filename.startswith(OUR_FILES):
        first += 1
    if not 0 < first < len(stack):
        return thread_stack(thread_id)
    shown = "".join(traceback.format_list(stack[first:][-STACK_FRAMES_MAX:]))
    above = counted(first, "frame")
    return (
        f"{shown[-STACK_CHARS_MAX:]}  (called through {above} of asyncio and Durio)\n"
    )


def all_stacks() -> list[ThreadStack]:
    """Return the live Python stacks of all threads, the main thread first."""
    known = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    main = threading.main_thread().ident
    return [
        ThreadStack(each, known.get(each, "thread"), thread_stack(each))
        for each in sorted(frames, key=lambda each: (each != main, each))
    ]


def end_process(code: int) -> None:
    """End at once, without `finally` or exit handlers; only flush output streams."""
    # In a thread of its own, because the thread that hangs may hold a stream's lock.
    flusher = threading.Thread(target=flush_streams, daemon=True)
    with suppress(RuntimeError):  # no thread can be started: do not flush
        flusher.start()
        flusher.join(FLUSH_SECONDS)
    os._exit(code)


def flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        # None under pythonw, closed at shutdown, or a pipe without a reader.
        with suppress(AttributeError, ValueError, OSError):
            stream.flush()
