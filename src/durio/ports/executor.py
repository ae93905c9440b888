"""Runs blocking functions outside the event loop: in threads and in child processes."""

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
    """The value or error of a function in a thread; with an error, ignore `value`."""

    value: Any
    error: BaseException | None


class ThreadStack(NamedTuple):
    """The stack of a thread now."""

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
        """Its result, on the loop that started it.

        An error is part of the result: a future that raised SystemExit or
        KeyboardInterrupt would stop the loop.
        """
        ...

    def interrupt(self, error: type[BaseException]) -> bool:
        """Raise `error` in it, at its next Python instruction; False: it has ended."""
        ...

    def abandon(self) -> None:
        """The caller stops waiting: the thread of this call no longer counts."""
        ...


class Executor(Protocol):
    """Threads for sync tasks."""

    def start(self, function: Callable[[], Any]) -> ThreadCallHandle:
        """Run it in a thread, in a copy of the caller's context."""
        ...

    def close(self) -> None:
        """End idle threads; those that hang last until the process ends."""
        ...


class ChildAttemptCallbacks(Protocol):
    """The sender of a job to a child process; called on the worker's loop.

    Log records of the child carry its job: a sender has the fields of `JobFields`.
    """

    def begun(self) -> None:
        """A child has the job: its time counts from now on."""
        ...

    def returned(self) -> None:
        """The child never began it: it waits for a child again, and no time counts."""
        ...

    def progressed(self, progress: bytes) -> None:
        """The task has reported this progress."""
        ...

    def finished(self, outcome: Outcome, event: Any) -> None:
        """The attempt has ended in the child; `event` is what to emit."""
        ...

    def crashed(self, how: str, stack: str, *, is_first: bool) -> None:
        """The child died while it ran the job: how, and its last stack if known.

        `is_first`: it was the only job that this child ever had.
        """
        ...


class ChildAttemptHandle(Protocol):
    """A job that waits for a child process or runs in one."""

    def withdraw(self) -> bool:
        """Stop waiting for a child; False: a child has it."""
        ...

    def warn(self) -> None:
        """Raise the soft time limit inside the task."""
        ...

    def interrupt(self, why: str) -> None:
        """Cancel it inside the child, for this reason."""
        ...

    def kill(self) -> None:
        """Kill its child and all processes that this started; no callback follows."""
        ...


class ChildVitals(NamedTuple):
    """The resources that the child processes of a worker use."""

    cpu_seconds: float  # also of children that have ended
    rss_bytes: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]


class ChildPool(Protocol):
    """Child processes that can be killed, for tasks with `process=True`."""

    async def open(self, *, ahead: bool, broken: Callable[[DurioError], None]) -> None:
        """Start the children ahead of the first job, or with it.

        Ahead: returns when one is ready, and raises ChildFailed when one cannot be.
        Later a failed start is retried a bounded number of times; then `broken` is
        called.
        """
        ...

    def send(
        self, claim: Claim, callbacks: ChildAttemptCallbacks
    ) -> ChildAttemptHandle:
        """Give a job to an idle child, or queue it."""
        ...

    def vitals(self) -> ChildVitals:
        """The resources they use; callable from any thread."""
        ...

    async def stacks(self, timeout_seconds: float) -> Mapping[int, str]:
        """The stacks of each child, by pid; missing if it gives no answer in time."""
        ...

    async def close(self) -> None:
        """End all children within a bounded time; those that still run are killed."""
        ...


class SideLoop(Protocol):
    """Runs heartbeat and watchdog beside the worker's loop.

    On a real machine it is a thread with its own loop, so that a blocked event loop
    cannot stop them; in a simulated world it is a task like any other.
    """

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this coroutine function there until `stop`."""
        ...

    async def stop(self) -> None:
        """Cancel what runs there and wait for its end, a bounded time."""
        ...
