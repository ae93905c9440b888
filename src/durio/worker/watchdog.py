"""The watchdog: notices a blocked event loop, names the guilty stack, keeps the hard limit.

Time limits rest on the event loop, and a call that blocks it stops them too. From beside
the loop the watchdog sees that it no longer answers, logs the stack of the call that
blocks it, and, when that attempt is past its hard limit, ends it the only way there is:
its outcome is recorded, with those that the loop had not got rid of; the neighbours are
given back uncharged, the process ends. Nobody holds that up: hooks are told elsewhere, a
bounded time.

A blocked loop does not hear a signal either. The watchdog knows when one came: when the
grace is over, or at the second one, it gives everything back and ends the process.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from typing import Any, Protocol

from durio.model.errors import StoreError
from durio.model.outcome import Kind, Outcome
from durio.ports.clock import Clock
from durio.ports.executor import ThreadStack
from durio.ports.store import Store
from durio.telemetry.emit import Emit, JobEvent
from durio.telemetry.log import in_job
from durio.worker.deadline import NEVER, Deadlines, excuse
from durio.worker.finish import Outbox
from durio.worker.inflight import Attempt, Why
from durio.worker.middleware import HookRunner

Told = tuple[Outcome, JobEvent | None]  # an end, and what to say of it when accepted

LOOKS_PER_BLOCK = 4
LAST_WORD_SECONDS = 5.0
NOBODY_SECONDS = 60.0  # no attempt runs: a hook, or a library's callback, blocks
ABANDONED_BLOCKS = 10  # times as long as is worth a word
NOT_AN_END = (Kind.PROGRESS, Kind.ALONE)
EXIT_BLOCKED = 70
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


def exit_by(signal: str | None) -> int:
    """The exit code after a signal that cut jobs short."""
    return EXIT_INTERRUPTED if signal == "SIGINT" else EXIT_TERMINATED


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

    async def run_elsewhere(
        self, work: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> bool:
        """Run it beside everything, wait so long at most; False: it has not ended."""
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
        outbox: Outbox,
        worker_id: Callable[[], int],
        time_out: Callable[[Attempt], Told],
        stopped: Callable[[Attempt], Told],
        hooks: HookRunner,
        deadlines: Deadlines,
        block_seconds: float,
        grace_seconds: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._machine = machine
        self._running = running
        self._outbox = outbox
        self._worker_id = worker_id
        self._time_out = time_out
        self._stopped = stopped
        self._hooks = hooks
        self._deadlines = deadlines
        self._block_seconds = block_seconds
        self._grace_seconds = grace_seconds
        self._watched = asyncio.get_running_loop()
        self._answered_at = clock.monotonic()
        self._has_told = False
        self._has_ended = False
        self._silent_before = 0.0  # at the last look at this block

    async def run(self) -> None:
        """Watch until cancelled."""
        self._answered_at = self._clock.monotonic()
        while True:
            asked_at = self._clock.monotonic()
            self._watched.call_soon_threadsafe(self._answer)
            await self._clock.sleep(self._block_seconds / LOOKS_PER_BLOCK)
            silent = self._clock.monotonic() - self._answered_at
            if self._answered_at >= asked_at:
                self._has_told = self._has_ended = False
            elif silent >= self._block_seconds:
                await self._blocked(silent)

    def _answer(self) -> None:
        self._answered_at = self._clock.monotonic()
        self._deadlines.answer()

    async def _blocked(self, seconds: float) -> None:
        before, guilty = self._deadlines.blamed, self._guilty()
        self._deadlines.blamed = guilty
        if guilty is not before and guilty is not None and self._has_told:
            # One block follows another before anybody could answer: what came before
            # was not its doing.
            excuse(guilty, self._silent_before, is_bounded=False)
        self._silent_before = seconds
        is_running = guilty is not None and self._running.get(guilty.claim.id) is guilty
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
        if guilty is not None and is_running and self._is_past_hard(guilty):
            await self._end(guilty)
        elif self._is_stop_due() or self._is_haunted(guilty, seconds):
            await self._end(None)
        elif guilty is None and seconds > self._longest_limit():
            # Nobody knows who it is, so it must not look as if nobody were: as after
            # a crash each is charged a little, and the guilty is found when it is alone.
            self._has_ended = True
            self._machine.end(EXIT_BLOCKED)

    def _guilty(self) -> Attempt | None:
        """The attempt whose code holds the loop, also in a task that it started."""
        current = asyncio.current_task(self._watched)
        return None if current is None else _attempt_of(current)

    def _is_haunted(self, guilty: Attempt | None, seconds: float) -> bool:
        """Whether the code of an abandoned attempt holds the loop, and does not let go."""
        is_over = guilty is not None and guilty.is_over
        return is_over and seconds > ABANDONED_BLOCKS * self._block_seconds

    def _longest_limit(self) -> float:
        """Whoever it is has had its time by then."""
        limits = [a.limits.hard_seconds for a in list(self._running.values())]
        return max((limit or NEVER for limit in limits), default=NOBODY_SECONDS)

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
        return exit_by(stops[0][0])

    def _is_past_hard(self, attempt: Attempt) -> bool:
        limits = attempt.limits
        if limits.hard_seconds is None:
            return False
        # Give the loop's own timer its chance first.
        passed = self._watched.time() - attempt.started - attempt.excused_seconds
        return passed - limits.hard_seconds > self._block_seconds

    async def _end(self, guilty: Attempt | None) -> None:
        """Say the last word, give the others back, and end: once, if we may not."""
        self._has_ended = True
        try:
            await self._say_last(guilty)
        finally:  # whatever went wrong with the last word: nobody else ends this process
            self._machine.end(self._exit_code())

    async def _say_last(self, guilty: Attempt | None) -> None:
        told: list[Told] = []
        # What a task has recorded in its own transaction is done, whatever follows.
        running = [a for a in list(self._running.values()) if a.recorded is None]
        if guilty is not None:
            if guilty.recorded is None:
                told.append(self._time_out(guilty))
            guilty.why = Why.FENCED  # that was its end: nothing more counts
        others = [a for a in running if a is not guilty]
        for other in others:
            other.why = other.why or Why.STOP
        told += [self._stopped(other) for other in others]
        # What had ended before waits for a loop that may never turn again.
        ended = self._outbox.drop()
        told += [(e.outcome, e.told) for e in ended if e.outcome.kind not in NOT_AN_END]
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                worker = self._worker_id()
                answers = await self._store.finish(worker, [o for o, _ in told])
                # What was claimed and not started goes back with the lease.
                await self._store.leave(worker)
        except (StoreError, TimeoutError) as error:
            self._emit("store.failed", call="finish", error=str(error) or "no answer")
            for each in ended:  # for a loop that turns again
                self._outbox.add(each)
        else:
            refused = {answer.id for answer in answers if not answer.landed}
            await self._tell([e for o, e in told if e and o.id not in refused])

    async def _tell(self, events: Sequence[JobEvent]) -> None:
        """To the log, and to hooks: their loop is blocked, and they may block too."""
        runner = self._hooks.moved()

        async def tell() -> None:
            self._emit.jobs(events)
            runner.tell(events)
            await runner.drain()

        if not await self._machine.run_elsewhere(tell, LAST_WORD_SECONDS):
            self._emit("hook.failed", error="hooks were still running at the end")


def _attempt_of(task: "asyncio.Task[Any]") -> Attempt | None:
    """The attempt in whose context a task runs; read from beside its loop."""
    # Before Python 3.12 a task does not tell its context, but the collector sees it.
    for held in gc.get_referents(task):
        if isinstance(held, Context):
            attempt = held.get(in_job)
            return attempt if isinstance(attempt, Attempt) else None
    return None
