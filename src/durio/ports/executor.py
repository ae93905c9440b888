"""Run blocking functions outside the event loop: in threads and in child processes."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from durio.model.errors import DurioError
from durio.model.job import Claim
from durio.model.outcome import Outcome


class SoftTimeLimit(asyncio.CancelledError):
    """Raised inside a task at its soft time limit, so that it cleans up and ends.

    It is a CancelledError, so that TaskGroups, `wait_for` and `finally` blocks clean up and
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
        """The thread that runs the function; 0 if none does yet."""
        ...

    @property
    def future(self) -> "asyncio.Future[ThreadResult]":
        """The result, on the loop that started the call.

        An error is part of the result: a future that raised SystemExit or KeyboardInterrupt
        would stop the loop.
        """
        ...

    def interrupt(self, error: type[BaseException]) -> bool:
        """Raise `error` at the function's next Python instruction; False if it has ended."""
        ...

    def abandon(self) -> None:
        """Stop waiting: the thread of this call no longer counts."""
        ...


class Executor(Protocol):
    """Threads for sync tasks."""

    def start(self, function: Callable[[], Any]) -> ThreadCallHandle:
        """Run the function in a thread, in a copy of the caller's context."""
        ...

    def close(self) -> None:
        """End idle threads; threads that hang last until the process ends."""
        ...


class ChildAttemptCallbacks(Protocol):
    """The sender of a job to a child process; called on the worker's loop.

    Log records of the child name its job, so a sender has the fields of `JobFields`.
    """

    def begun(self) -> None:
        """Called when a child has started the job: its time counts from now on."""
        ...

    def returned(self) -> None:
        """Called when a child returns the job unstarted: it waits for a child again."""
        ...

    def progressed(self, progress: bytes) -> None:
        """Called when the task has reported this progress."""
        ...

    def finished(self, outcome: Outcome, event: Any) -> None:
        """Called when the attempt has ended in the child; `event` is the event to emit."""
        ...

    def crashed(self, how: str, stack: str, *, is_first: bool) -> None:
        """Called when the child died while it ran the job, with its last stack if known.

        `how` says how the child died. `is_first`: this was the only job that the child ever
        had.
        """
        ...


class ChildAttemptHandle(Protocol):
    """A job that waits for a child process or runs in one."""

    def withdraw(self) -> bool:
        """Stop waiting for a child; return False if a child has the job."""
        ...

    def warn(self) -> None:
        """Raise the soft time limit inside the task."""
        ...

    def interrupt(self, why: str) -> None:
        """Cancel the task inside the child, for this reason."""
        ...

    def kill(self) -> None:
        """Kill the child and all processes that it started; no callback follows."""
        ...


class ChildVitals(NamedTuple):
    """The resources that the child processes of a worker use."""

    cpu_seconds: float  # also of children that have ended
    rss_bytes: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]


class ChildPool(Protocol):
    """Child processes that can be killed, for tasks with `process=True`."""

    async def open(self, *, ahead: bool, broken: Callable[[DurioError], None]) -> None:
        """Start the children before the first job, or with it.

        If started before: returns when one child is ready, and raises ChildFailed if none
        can be. Later a failed start is retried a limited number of times; then `broken` is
        called.
        """
        ...

    def send(
        self, claim: Claim, callbacks: ChildAttemptCallbacks
    ) -> ChildAttemptHandle:
        """Give a job to an idle child, or queue it."""
        ...

    def vitals(self) -> ChildVitals:
        """Return the resources that the children use; callable from any thread."""
        ...

    async def stacks(self, timeout_seconds: float) -> Mapping[int, str]:
        """Return the stacks of each child, by pid.

        A child that does not reply in time is left out.
        """
        ...

    async def close(self) -> None:
        """End all children within a limited time; kill those that still run."""
        ...


class SideLoop(Protocol):
    """Runs heartbeat and watchdog outside the worker's loop.

    On a real machine it is a thread with its own loop, so that a blocked event loop cannot
    stop them; in a simulation it is a task like any other.
    """

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this coroutine function on the side loop until `stop`."""
        ...

    async def stop(self) -> None:
        """Cancel what runs on the side loop and wait for its end, for a limited time."""
        ...
