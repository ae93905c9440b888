"""The watchdog: notices a blocked event loop, names the guilty stack, keeps the hard limit.

Time limits rest on the event loop, and a call that blocks it stops them too. From beside
the loop the watchdog sees that it no longer answers, logs the stack of the call that
blocks it, and, when that attempt is past its hard limit, ends it the only way there is:
its outcome is recorded, the neighbours are given back uncharged, the process ends.

A blocked loop does not hear a signal either. The watchdog knows when one came: when the
grace is over, or at the second one, it gives everything back and ends the process.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from durio.model.errors import StoreError
from durio.model.outcome import Kind, Outcome
from durio.ports.clock import Clock
from durio.ports.executor import ThreadStack
from durio.ports.store import Store
from durio.telemetry.emit import Emit
from durio.worker.inflight import Attempt

LOOKS_PER_BLOCK = 4
LAST_WORD_SECONDS = 5.0
EXIT_BLOCKED = 70
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


class Machine(Protocol):
    """The process that a worker lives in."""

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        ...

    def rss_bytes(self) -> int:
        """Resident memory now."""
        ...

    def stops(self) -> Sequence[tuple[str, float]]:
        """The signals that asked for a stop, and when, on the monotonic clock."""
        ...

    def stack(self) -> str:
        """The live stack of the thread that runs the worker's loop."""
        ...

    def stacks(self) -> list[ThreadStack]:
        """The live stacks of all its threads."""
        ...

    def end(self, code: int) -> None:
        """End the process now; where it is not ours, only say so."""
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
        grace_seconds: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._machine = machine
        self._running = running
        self._worker_id = worker_id
        self._time_out = time_out
        self._block_seconds = block_seconds
        self._grace_seconds = grace_seconds
        self._watched = asyncio.get_running_loop()
        self._answered_at = clock.monotonic()
        self._has_told = False
        self._has_ended = False

    async def run(self) -> None:
        """Watch until cancelled."""
        self._answered_at = self._clock.monotonic()
        while True:
            asked_at = self._clock.monotonic()
            self._watched.call_soon_threadsafe(self._answer)
            await self._clock.sleep(self._block_seconds / LOOKS_PER_BLOCK)
            silent = self._clock.monotonic() - max(self._answered_at, 0.0)
            if self._answered_at >= asked_at or silent < self._block_seconds:
                if self._answered_at >= asked_at:
                    self._has_told = self._has_ended = False
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
        if self._has_ended:
            return
        late = self._late(guilty)
        if late or self._is_stop_due():
            # Once: where the process is not ours to end, this returns.
            self._has_ended = True
            await self._last_word(late)

    def _guilty(self) -> Attempt | None:
        current = asyncio.current_task(self._watched)
        if current is None:
            return None
        for attempt in list(self._running.values()):
            if attempt.task_of_loop is current:
                return attempt
        return None

    def _late(self, guilty: Attempt | None) -> list[Attempt]:
        """The guilty, past its hard limit; nobody known (a task of a task): all such."""
        suspects = list(self._running.values()) if guilty is None else [guilty]
        return [attempt for attempt in suspects if self._is_past_hard(attempt)]

    def _is_stop_due(self) -> bool:
        """Whether a stop was asked for that the loop cannot hear, and must be now."""
        stops = self._machine.stops()
        if not stops:
            return False
        waited = self._clock.monotonic() - stops[0][1]
        return len(stops) > 1 or waited >= self._grace_seconds

    def _exit_code(self) -> int:
        stops = self._machine.stops()
        if not stops:
            return EXIT_BLOCKED
        return EXIT_INTERRUPTED if stops[0][0] == "SIGINT" else EXIT_TERMINATED

    def _is_past_hard(self, attempt: Attempt) -> bool:
        limits = attempt.limits
        if limits.hard_seconds is None:
            return False
        # Give the loop's own timer its chance first.
        late = self._watched.time() - attempt.started - limits.hard_seconds
        return late > self._block_seconds

    async def _last_word(self, late: Sequence[Attempt]) -> None:
        outcomes = [self._time_out(attempt) for attempt in late]
        outcomes += [
            Outcome(other.claim.id, other.claim.claim_no, Kind.RELEASE)
            for other in list(self._running.values())
            if other not in late
        ]
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                worker = self._worker_id()
                await self._store.finish(worker, outcomes)
                # What was claimed and not started goes back with the lease.
                await self._store.leave(worker)
        except (StoreError, TimeoutError) as error:
            self._emit("store.failed", call="finish", error=str(error))
        self._machine.end(self._exit_code())
