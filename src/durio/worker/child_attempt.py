"""The worker's side of an attempt that runs in a child process.

The child decodes the arguments, runs the function and decides the outcome, exactly as a
worker does. The worker's side passes the outcome on, and does what only the worker can do.
It kills the child at the hard limit or after a cancel that the task ignores. It records a
loss when the child dies, because only this attempt ran there.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from durio.model.errors import DurioError, InvariantBroken
from durio.model.job import Claim
from durio.model.outcome import Outcome
from durio.ports.executor import ChildAttemptHandle, ChildPool
from durio.ports.handler import Handler
from durio.telemetry.emit import JobEvent
from durio.worker.attempt import AttemptRunner
from durio.worker.inflight import Attempt, InterruptReason

CANCEL_SECONDS = 5.0  # time for a cancelled task to end before its child is killed


class AttemptSlots(Protocol):
    """The part of the slots that a child attempt uses."""

    def begun(self, attempt: Attempt, *, is_first: bool) -> None:
        """Start the attempt's time limits: a child has started it.

        `is_first`: no child had started it before.
        """
        ...

    def end_attempt(
        self, attempt: Attempt, outcome: Outcome, event: JobEvent | None
    ) -> None: ...


class ChildAttempt(Attempt):
    """One attempt in a child process, or waiting for one."""

    __slots__ = ("_is_start_reported", "_is_withdrawn", "_runner", "_sent", "_slots")

    def __init__(
        self, claim: Claim, handler: Handler, runner: AttemptRunner, slots: AttemptSlots
    ) -> None:
        super().__init__(claim, handler, runner.loop.time(), runner)
        self._runner = runner
        self._slots = slots
        self._sent: ChildAttemptHandle | None = None
        self._is_start_reported = False
        self._is_withdrawn = False

    def send(self) -> None:
        """Give the attempt to an idle child, or queue it for the next one."""
        pool = self._runner.child_pool
        if pool is None:
            raise InvariantBroken("a worker with such tasks has child processes")
        self._sent = pool.send(self.claim, self)

    # --- stopping from outside

    def interrupt(self, reason: InterruptReason) -> None:
        if self.is_over or self._sent is None:
            return
        self.interrupt_reason = self.interrupt_reason or reason
        if reason is InterruptReason.FENCED:
            return  # nothing may be written; the caller abandons the attempt
        if self._sent.withdraw():
            self._slots.end_attempt(self, *self._runner.stopped(self))
            return
        self._sent.interrupt(reason.value)
        if reason is InterruptReason.CANCEL:
            self.runner.loop.call_later(CANCEL_SECONDS, self._kill_unresponsive)

    def withdraw(self) -> None:
        """Give the attempt back if no child has started it, now or when a child returns it."""
        self._is_withdrawn = True
        if not self.has_begun:
            self.interrupt(InterruptReason.STOP)

    def _kill_unresponsive(self) -> None:
        if not self.is_over:
            self.abandon()
            self._slots.end_attempt(self, *self._runner.stopped(self))

    def warn(self) -> None:
        if self._sent is not None:
            self._sent.warn()

    def abandon(self) -> None:
        """Kill the attempt's child, unless the attempt still waits for one."""
        if self._sent is not None and not self._sent.withdraw():
            self._sent.kill()

    # --- callbacks of the child pool

    def begun(self) -> None:
        self.has_begun = True
        self.started = self.runner.loop.time()
        self._slots.begun(self, is_first=not self._is_start_reported)
        self._is_start_reported = True

    def returned(self) -> None:
        """Take back an attempt that the child did not start: end it if stopped, else wait."""
        self.has_begun = False
        self.limit_at = float("inf")
        if self.interrupt_reason is not None or self._is_withdrawn:
            self.interrupt(self.interrupt_reason or InterruptReason.STOP)

    def progressed(self, progress: bytes) -> None:
        self.runner.report(self, progress)

    def finished(self, outcome: Outcome, event: JobEvent | None) -> None:
        """Record the outcome that the child reports; `meta` stays with the worker."""
        if event is not None and self.overrides is not None:
            event = event._replace(meta=self.overrides.meta)
        if not self.is_over:
            self._slots.end_attempt(self, outcome, event)

    def crashed(self, how: str, stack: str, *, is_first: bool) -> None:
        """Record a loss, because the child died, unless the worker was stopping it."""
        if self.is_over:
            return
        if self.interrupt_reason is None:
            self._slots.end_attempt(
                self, *self._runner.lost(self, how, stack, is_cause=is_first)
            )
        else:
            self._slots.end_attempt(self, *self._runner.stopped(self))


def withdraw_waiting(attempts: Iterable[Attempt]) -> None:
    """Give back, uncharged, attempts that still wait for a child."""
    for attempt in list(attempts):
        if isinstance(attempt, ChildAttempt):
            attempt.withdraw()


def needs_child_pool(
    handlers: Mapping[str, Handler], serves: Callable[[str], bool]
) -> bool:
    """Whether a task of a served queue needs child processes from the start."""
    return any(h.is_process and serves(h.queue) for h in handlers.values())


@asynccontextmanager
async def open_child_pool(
    child_pool: ChildPool | None,
    *,
    ahead: bool,
    broken: Callable[[DurioError], None],
    stop: asyncio.Event,
) -> AsyncGenerator[None, None]:
    """Open the child pool while the worker works; a stop does not wait for the opening."""
    if child_pool is None:
        yield
        return
    loop = asyncio.get_running_loop()
    opens = loop.create_task(child_pool.open(ahead=ahead, broken=broken))
    stops = loop.create_task(stop.wait())
    try:
        # A stop does not wait until the children have imported the user's code.
        await asyncio.wait((opens, stops), return_when=asyncio.FIRST_COMPLETED)
        if opens.done():
            opens.result()
        yield
    finally:
        opens.cancel()
        stops.cancel()
        await child_pool.close()
