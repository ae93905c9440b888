"""The process among others: signals that ask it to stop, its name, stacks and end."""

import asyncio
import os
import platform
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, final

HOST_NAME_CHARS_MAX = 64
STACK_FRAMES_MAX = 40
STACK_CHARS_MAX = 8_000
FLUSH_SECONDS = 1.0


@final
class Signals:
    """SIGTERM and SIGINT as a call on the loop: `callback("SIGTERM", 1)`.

    The number counts signals of both kinds from 1, so that the second can be told from
    the first. Outside the main thread, where Python allows no handlers, this does
    nothing: whoever owns the main thread (a web server) decides when to stop.
    """

    def __init__(
        self,
        callback: Callable[[str, int], object],
        wanted: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT),
    ) -> None:
        self.callback = callback
        self.wanted = wanted
        self.count = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.previous: dict[signal.Signals, Any] = {}

    def install(self) -> bool:
        """Take the signals over, on the running loop; False: not the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self.loop = asyncio.get_running_loop()
        for each in self.wanted:
            self.previous[each] = signal.getsignal(each)
            self.loop.add_signal_handler(each, self.receive, each)
        return True

    def uninstall(self) -> None:
        """Give the signals back to whoever had them."""
        loop, self.loop = self.loop, None
        if loop is None:
            return
        for each, handler in self.previous.items():
            with suppress(RuntimeError):  # the loop is closed: it gave them up itself
                loop.remove_signal_handler(each)
            if handler is not None:  # None: set by C code, which Python cannot restore
                signal.signal(each, handler)
        self.previous.clear()

    def receive(self, each: signal.Signals) -> None:
        """Pass one on."""
        self.count += 1
        self.callback(each.name, self.count)

    async def __aenter__(self) -> Self:
        self.install()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.uninstall()


class ProcessName(NamedTuple):
    """Who we are among the workers; `str` of it is `host/pid`."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}"


def process_name() -> ProcessName:
    """This process, by the names that people and the store use."""
    return ProcessName(host_name(), os.getpid())


def host_name() -> str:
    """This machine or container, as it calls itself."""
    return platform.node()[:HOST_NAME_CHARS_MAX] or "localhost"


def dump_stacks(thread_id: int) -> str:
    """The live Python stack of one thread, innermost last, bounded from outside."""
    # The only way to see another thread's frames, whatever its name says.
    frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    frame = frames.get(thread_id)
    if frame is None:
        return f"no thread {thread_id}\n"
    stack = traceback.extract_stack(frame, limit=STACK_FRAMES_MAX)
    return "".join(traceback.format_list(stack))[-STACK_CHARS_MAX:]


def end_process(code: int) -> None:
    """End at once: no `finally`, no exit handler, only what was printed is flushed."""
    # In a thread of its own: a stream's lock may be held by the very thread that hangs.
    flusher = threading.Thread(target=flush_streams, daemon=True)
    with suppress(RuntimeError):  # no thread to be had: then without
        flusher.start()
        flusher.join(FLUSH_SECONDS)
    os._exit(code)


def flush_streams() -> None:
    """Write out what print() still holds."""
    for stream in (sys.stdout, sys.stderr):
        # None under pythonw, closed at shutdown, or a pipe that nobody reads.
        with suppress(AttributeError, ValueError, OSError):
            stream.flush()
