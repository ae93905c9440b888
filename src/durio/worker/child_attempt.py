"""An attempt that a child process makes: the worker's half of it.

The child decodes, runs the function and decides how the attempt ends, exactly as a worker
does; here its word is passed on. What only the worker can do is here too: the hard limit
and a cancel that nobody hears end the child itself, and a child that dies takes the blame
with it, for nobody else ran in it.
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

CANCEL_SECONDS = 5.0  # for a cancelled task to end before its child is killed


class AttemptSlots(Protocol):
    """The slots, as far as an attempt elsewhere is concerned."""

    def begun(self, attempt: Attempt, *, is_first: bool) -> None:
        """Its time counts from now on; `is_first`: no child had it before."""
        ...

    def end_attempt(
        self, attempt: Attempt, outcome: Outcome, event: JobEvent | None
    ) -> None:
        """It has ended."""
        ...


class ChildAttempt(Attempt):
    """One attempt in a child process, or in line for one."""

    __slots__ = ("_is_start_reported", "_is_withdrawn", "_runner", "_sent", "_slots")

    def __init__(
        self, claim: Claim, handler: Handler, runner: AttemptRunner, slots: AttemptSlots
    ) -> None:
        super().__init__(claim, handler, runner.loop.time(), runner)
        self._runner = runner
        self._slots = slots
        self._sent: ChildAttemptHandle | None = None
        self._is_start_reported = False  # that it has begun
        self._is_withdrawn = False

    def send(self) -> None:
        """To a child, or to the end of the line."""
        pool = self._runner.child_pool
        if pool is None:
            raise InvariantBroken("a worker with such tasks has child processes")
        self._sent = pool.send(self.claim, self)

    # --- being stopped from outside

    def interrupt(self, reason: InterruptReason) -> None:
        """Cancel the attempt for this reason; the first reason stays."""
        if self.is_over or self._sent is None:
            return
        self.interrupt_reason = self.interrupt_reason or reason
        if reason is InterruptReason.FENCED:
            return  # nothing may be written: it is abandoned at once
        if self._sent.withdraw():
            self._slots.end_attempt(self, *self._runner.stopped(self))
            return
        self._sent.interrupt(reason.value)
        if reason is InterruptReason.CANCEL:
            self.runner.loop.call_later(CANCEL_SECONDS, self._kill_unresponsive)

    def withdraw(self) -> None:
        """What no child has yet goes back, also once a child gives it back unbegun."""
        self._is_withdrawn = True
        if not self.has_begun:
            self.interrupt(InterruptReason.STOP)

    def _kill_unresponsive(self) -> None:
        if not self.is_over:
            self.abandon()
            self._slots.end_attempt(self, *self._runner.stopped(self))

    def warn(self) -> None:
        """The soft limit: SoftTimeLimit inside the task."""
        if self._sent is not None:
            self._sent.warn()

    def abandon(self) -> None:
        """Nobody waits for it any more: its child is killed."""
        if self._sent is not None and not self._sent.withdraw():
            self._sent.kill()

    # --- what the nursery tells

    def begun(self) -> None:
        """A child has it."""
        self.has_begun = True
        self.started = self.runner.loop.time()
        self._slots.begun(self, is_first=not self._is_start_reported)
        self._is_start_reported = True

    def returned(self) -> None:
        """The child that had it never began it; what we were stopping is over."""
        self.has_begun = False
        self.limit_at = float("inf")
        if self.interrupt_reason is not None or self._is_withdrawn:
            self.interrupt(self.interrupt_reason or InterruptReason.STOP)

    def progressed(self, progress: bytes) -> None:
        """Progress."""
        self.runner.report(self, progress)

    def finished(self, outcome: Outcome, event: JobEvent | None) -> None:
        """The child's word on how it ended."""
        if event is not None and self.overrides is not None:
            event = event._replace(meta=self.overrides.meta)
        if not self.is_over:
            self._slots.end_attempt(self, outcome, event)

    def crashed(self, how: str, stack: str, *, is_first: bool) -> None:
        """Its child has died; or that is how we were stopping it."""
        if self.is_over:
            return
        if self.interrupt_reason is None:
            self._slots.end_attempt(
                self, *self._runner.lost(self, how, stack, is_cause=is_first)
            )
        else:
            self._slots.end_attempt(self, *self._runner.stopped(self))


def withdraw_waiting(attempts: Iterable[Attempt]) -> None:
    """Those in line for a child go back, uncharged."""
    for attempt in list(attempts):
        if isinstance(attempt, ChildAttempt):
            attempt.withdraw()


def needs_child_pool(
    handlers: Mapping[str, Handler], serves: Callable[[str], bool]
) -> bool:
    """Whether tasks of the queues at hand need child processes from the start on."""
    return any(h.is_process and serves(h.queue) for h in handlers.values())


@asynccontextmanager
async def open_child_pool(
    child_pool: ChildPool | None,
    *,
    ahead: bool,
    broken: Callable[[DurioError], None],
    stop: asyncio.Event,
) -> AsyncGenerator[None, None]:
    """The child processes of a worker, for as long as it works."""
    if child_pool is None:
        yield
        return
    loop = asyncio.get_running_loop()
    opens = loop.create_task(child_pool.open(ahead=ahead, broken=broken))
    stops = loop.create_task(stop.wait())
    try:
        # A stop need not wait for somebody's imports.
        await asyncio.wait((opens, stops), return_when=asyncio.FIRST_COMPLETED)
        if opens.done():
            opens.result()
        yield
    finally:
        opens.cancel()
        stops.cancel()
        await child_pool.close()
