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
from durio.ports.executor import Errand, Nursery
from durio.ports.handler import Handler
from durio.telemetry.emit import JobEvent
from durio.worker.attempt import Bench
from durio.worker.inflight import Attempt, Why

CANCEL_SECONDS = 5.0  # for a cancelled task to end before its child is killed


class Runs(Protocol):
    """The slots, as far as an attempt elsewhere is concerned."""

    def begun(self, attempt: Attempt, *, is_first: bool) -> None:
        """Its time counts from now on; `is_first`: no child had it before."""
        ...

    def over(self, attempt: Attempt, outcome: Outcome, event: JobEvent | None) -> None:
        """It has ended."""
        ...


class ChildAttempt(Attempt):
    """One attempt in a child process, or in line for one."""

    __slots__ = ("_bench", "_errand", "_is_called_back", "_is_told", "_runs")

    def __init__(
        self, claim: Claim, handler: Handler, bench: Bench, runs: Runs
    ) -> None:
        super().__init__(claim, handler, bench.loop.time(), bench)
        self._bench = bench
        self._runs = runs
        self._errand: Errand | None = None
        self._is_told = False  # that it has begun
        self._is_called_back = False

    def send(self) -> None:
        """To a child, or to the end of the line."""
        nursery = self._bench.nursery
        if nursery is None:
            raise InvariantBroken("a worker with such tasks has child processes")
        self._errand = nursery.send(self.claim, self)

    # --- being stopped from outside

    def interrupt(self, why: Why) -> None:
        """Cancel the attempt for this reason; the first reason stays."""
        if self.is_over or self._errand is None:
            return
        self.why = self.why or why
        if why is Why.FENCED:
            return  # nothing may be written: it is abandoned at once
        if self._errand.withdraw():
            self._runs.over(self, *self._bench.stopped(self))
            return
        self._errand.interrupt(why.value)
        if why is Why.CANCEL:
            self.desk.loop.call_later(CANCEL_SECONDS, self._insist)

    def withdraw(self) -> None:
        """What no child has yet goes back, also once a child gives it back unbegun."""
        self._is_called_back = True
        if not self.has_begun:
            self.interrupt(Why.STOP)

    def _insist(self) -> None:
        if not self.is_over:
            self.abandon()
            self._runs.over(self, *self._bench.stopped(self))

    def warn(self) -> None:
        """The soft limit: SoftTimeLimit inside the task."""
        if self._errand is not None:
            self._errand.warn()

    def abandon(self) -> None:
        """Nobody waits for it any more: its child is killed."""
        if self._errand is not None and not self._errand.withdraw():
            self._errand.kill()

    # --- what the nursery tells

    def begun(self) -> None:
        """A child has it."""
        self.has_begun = True
        self.started = self.desk.loop.time()
        self._runs.begun(self, is_first=not self._is_told)
        self._is_told = True

    def returned(self) -> None:
        """The child that had it never began it; what we were stopping is over."""
        self.has_begun = False
        self.limit_at = float("inf")
        if self.why is not None or self._is_called_back:
            self.interrupt(self.why or Why.STOP)

    def noted(self, told: bytes) -> None:
        """Progress."""
        self.desk.report(self, told)

    def finished(self, outcome: Outcome, event: JobEvent | None) -> None:
        """The child's word on how it ended."""
        if event is not None and self.cold is not None:
            event = event._replace(meta=self.cold.meta)
        if not self.is_over:
            self._runs.over(self, outcome, event)

    def crashed(self, how: str, stack: str, *, is_first: bool) -> None:
        """Its child has died; or that is how we were stopping it."""
        if self.is_over:
            return
        if self.why is None:
            self._runs.over(self, *self._bench.lost(self, how, stack, guilty=is_first))
        else:
            self._runs.over(self, *self._bench.stopped(self))


def withdraw_waiting(attempts: Iterable[Attempt]) -> None:
    """Those in line for a child go back, uncharged."""
    for attempt in list(attempts):
        if isinstance(attempt, ChildAttempt):
            attempt.withdraw()


def wants_children(
    handlers: Mapping[str, Handler], serves: Callable[[str], bool]
) -> bool:
    """Whether tasks of the queues at hand need child processes from the start on."""
    return any(h.is_process and serves(h.queue) for h in handlers.values())


@asynccontextmanager
async def cared_for(
    nursery: Nursery | None,
    *,
    ahead: bool,
    broken: Callable[[DurioError], None],
    stop: asyncio.Event,
) -> AsyncGenerator[None, None]:
    """The child processes of a worker, for as long as it works."""
    if nursery is None:
        yield
        return
    loop = asyncio.get_running_loop()
    opens = loop.create_task(nursery.open(ahead=ahead, broken=broken))
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
        await nursery.close()
