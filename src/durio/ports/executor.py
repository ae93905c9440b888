"""Running functions that block, away from the event loop: in threads, in child processes."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from durio.model.errors import DurioError
from durio.model.job import Claim
from durio.model.outcome import Outcome


class SoftTimeLimit(asyncio.CancelledError):
    """Raised inside a task at its soft time limit: clean up and end.

    A CancelledError, so that TaskGroups, `wait_for` and `finally` blocks clean up and
    an `except Exception` does not swallow it.
    """

    __module__ = "durio"


class ThreadResult(NamedTuple):
    """How a function in a thread ended; `value` means something without an `error`."""

    value: Any
    error: BaseException | None


class ThreadStack(NamedTuple):
    """Where a thread is at the moment."""

    id: int
    name: str
    stack: str


class ThreadCallHandle(Protocol):
    """A function running in a thread."""

    @property
    def thread_id(self) -> int:
        """The thread that runs it; 0: none yet."""
        ...

    @property
    def future(self) -> "asyncio.Future[ThreadResult]":
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

    def start(self, function: Callable[[], Any]) -> ThreadCallHandle:
        """Run it in a thread, in a copy of the caller's context."""
        ...

    def close(self) -> None:
        """Let idle threads go; those that hang are left to the process's end."""
        ...


class ChildAttemptCallbacks(Protocol):
    """Who sent a job to a child process, and hears about it on the worker's loop.

    Log records of the child carry its job: a sender has the fields of `JobFields`.
    """

    def begun(self) -> None:
        """A child has the job: its time counts from now on."""
        ...

    def returned(self) -> None:
        """The child never began it: it is in line again, and no time counts."""
        ...

    def progressed(self, progress: bytes) -> None:
        """Progress."""
        ...

    def finished(self, outcome: Outcome, event: Any) -> None:
        """The attempt has ended in the child, and this is what to tell."""
        ...

    def crashed(self, how: str, stack: str, *, is_first: bool) -> None:
        """The child has died under it: how, and where its code was if it could say.

        `is_first`: it was the only job that this child ever had.
        """
        ...


class ChildAttemptHandle(Protocol):
    """A job on its way through a child process."""

    def withdraw(self) -> bool:
        """Take it out of the line; False: a child has it."""
        ...

    def warn(self) -> None:
        """The soft time limit, inside the task."""
        ...

    def interrupt(self, why: str) -> None:
        """Cancel it inside the child, for this reason."""
        ...

    def kill(self) -> None:
        """End its child and all that this started; the sender hears nothing more."""
        ...


class ChildVitals(NamedTuple):
    """What the child processes of a worker use."""

    cpu_seconds: float  # also of those that are gone
    rss_bytes: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]


class ChildPool(Protocol):
    """Child processes that can be killed, for tasks with `process=True`."""

    async def open(self, *, ahead: bool, broken: Callable[[DurioError], None]) -> None:
        """Start them ahead of the first job, or with it.

        Ahead: returns when one is ready, and raises ChildFailed when one cannot be. Later
        a start that fails is tried again, a bounded number of times: then `broken`.
        """
        ...

    def send(
        self, claim: Claim, callbacks: ChildAttemptCallbacks
    ) -> ChildAttemptHandle:
        """Give it to a child, or put it in line for one."""
        ...

    def vitals(self) -> ChildVitals:
        """What they use; may be asked from any thread."""
        ...

    async def stacks(self, timeout_seconds: float) -> Mapping[int, str]:
        """Where the code of each is, by pid; one that says nothing is missing."""
        ...

    async def close(self) -> None:
        """End all of them, a bounded time; whatever still runs is killed."""
        ...


class SideLoop(Protocol):
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
