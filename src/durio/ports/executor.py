"""Running functions that block, away from the event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol


class SoftTimeLimit(asyncio.CancelledError):
    """Raised inside a task at its soft time limit: clean up and end.

    A CancelledError, so that TaskGroups, `wait_for` and `finally` blocks clean up and
    an `except Exception` does not swallow it.
    """

    __module__ = "durio"


class Ended(NamedTuple):
    """How a function in a thread ended; `value` means something without an `error`."""

    value: Any
    error: BaseException | None


class Call(Protocol):
    """A function running in a thread."""

    @property
    def future(self) -> "asyncio.Future[Ended]":
        """How it ended, on the loop that started it.

        An error is part of the result: a future that raised SystemExit or
        KeyboardInterrupt would stop the loop.
        """
        ...

    def interrupt(self, error: type[BaseException]) -> bool:
        """Raise `error` in it, at its next Python instruction; False: it has ended."""
        ...

    def abandon(self) -> None:
        """Nobody waits for it any more: its thread no longer counts."""
        ...


class Executor(Protocol):
    """Threads for sync tasks."""

    def start(self, function: Callable[[], Any]) -> Call:
        """Run it in a thread, in a copy of the caller's context."""
        ...

    def close(self) -> None:
        """Let idle threads go; those that hang are left to the process's end."""
        ...


class Aside(Protocol):
    """A place beside the worker's loop, where heartbeat and watchdog run.

    On a real machine a thread with a loop of its own, so that a blocked event loop
    cannot stop them; in a simulated world a task like any other.
    """

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this coroutine function there until `stop`."""
        ...

    async def stop(self) -> None:
        """Cancel what runs there and wait for its end, a bounded time."""
        ...
