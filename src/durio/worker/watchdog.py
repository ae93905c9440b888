"""The watchdog: notices a blocked event loop, names the guilty stack, keeps the hard limit.

Time limits rest on the event loop, and a call that blocks it stops them too. From beside
the loop the watchdog sees that it no longer answers, logs the stack of the call that
blocks it, and, when that attempt is past its hard limit, ends it the only way there is:
its outcome is recorded, the neighbours are given back uncharged, the process ends.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from durio.model.errors import StoreError
from durio.model.outcome import Kind, Outcome
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.telemetry.emit import Emit
from durio.worker.inflight import Attempt

LOOKS_PER_BLOCK = 4
LAST_WORD_SECONDS = 5.0
EXIT_BLOCKED = 70


class Machine(Protocol):
    """What a watchdog needs of the machine."""

    def stack(self) -> str:
        """The live stack of the thread that runs the worker's loop."""
        ...

    def end(self, code: int) -> None:
        """End the process now."""
        ...


class Watchdog:
    """Watches one event loop from another."""

    def __init__(  # noqa: PLR0913 - a loop and what it watches
        self,
        *,
        store: Store,
        clock: Clock,
        emit: Emit,
        machine: Machine,
        running: Mapping[bytes, Attempt],
        worker_id: Callable[[], int],
        time_out: Callable[[Attempt], Outcome],
        block_seconds: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._machine = machine
        self._running = running
        self._worker_id = worker_id
        self._time_out = time_out
        self._block_seconds = block_seconds
        self._watched = asyncio.get_running_loop()
        self._answered_at = clock.monotonic()
        self._has_told = False

    async def run(self) -> None:
        """Watch until cancelled."""
        self._answered_at = self._clock.monotonic()
        while True:
            asked_at = self._clock.monotonic()
            self._watched.call_soon_threadsafe(self._answer)
            await self._clock.sleep(self._block_seconds / LOOKS_PER_BLOCK)
            silent = self._clock.monotonic() - max(self._answered_at, 0.0)
            if self._answered_at >= asked_at or silent < self._block_seconds:
                self._has_told = self._has_told and self._answered_at < asked_at
                continue
            await self._blocked(silent)

    def _answer(self) -> None:
        self._answered_at = self._clock.monotonic()

    async def _blocked(self, seconds: float) -> None:
        guilty = self._guilty()
        if not self._has_told:
            self._has_told = True
            self._emit(
                "loop.blocked",
                seconds=round(seconds, 1),
                task=guilty.task if guilty else "",
                stack=self._machine.stack(),
            )
        if guilty is not None and self._is_past_hard(guilty):
            await self._last_word(guilty)

    def _guilty(self) -> Attempt | None:
        current = asyncio.current_task(self._watched)
        for attempt in list(self._running.values()):
            if attempt.task_of_loop is current:
                return attempt
        return None

    def _is_past_hard(self, attempt: Attempt) -> bool:
        limits = attempt.limits
        if limits.hard_seconds is None:
            return False
        # Give the loop's own timer its chance first.
        late = self._watched.time() - attempt.started - limits.hard_seconds
        return late > self._block_seconds

    async def _last_word(self, guilty: Attempt) -> None:
        outcomes: list[Outcome] = [self._time_out(guilty)]
        outcomes += [
            Outcome(other.claim.id, other.claim.claim_no, Kind.RELEASE)
            for other in _others(list(self._running.values()), guilty)
        ]
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                worker = self._worker_id()
                await self._store.finish(worker, outcomes)
                # What was claimed and not started goes back with the lease.
                await self._store.leave(worker)
        except (StoreError, TimeoutError) as error:
            self._emit("store.failed", call="finish", error=str(error))
        self._machine.end(EXIT_BLOCKED)


def _others(running: Sequence[Attempt], guilty: Attempt) -> list[Attempt]:
    return [attempt for attempt in running if attempt is not guilty]
