"""The watchdog: notices a blocked event loop, logs its stack, enforces the hard limit.

Time limits depend on the event loop, and a call that blocks the loop stops them too. The
watchdog runs on a side loop. When the worker's loop no longer responds, it logs the stack
of the blocking call. When the blocking attempt is past its hard limit, the only way to end
it is to end the process. Before that the watchdog records the outcome of that attempt and
all unsent outcomes, and gives the other attempts back, uncharged. Hooks run in another
thread, for at most 5 s, so they cannot delay the end.

A blocked loop does not handle signals either. The watchdog sees them: when the grace is
over, or at the second signal, it gives all jobs back and ends the process.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from typing import Any, Protocol

from durio.model.errors import StoreError
from durio.model.outcome import OutcomeKind
from durio.ports.clock import Clock
from durio.ports.executor import ThreadStack
from durio.ports.store import Store
from durio.telemetry.emit import Emit, JobEvent
from durio.telemetry.log import in_job
from durio.worker.attempt import AttemptEnd
from durio.worker.deadline import NEVER, Deadlines, excuse
from durio.worker.inflight import Attempt, InterruptReason
from durio.worker.loop_lag import LoopLag
from durio.worker.middleware import HookRunner
from durio.worker.outcome_buffer import OutcomeBuffer

LOOKS_PER_BLOCK = 4
FINAL_WRITE_SECONDS = 5.0
# Limit if no attempt runs: a hook or a library's callback blocks.
NO_ATTEMPT_SECONDS = 60.0
ABANDONED_BLOCKS = 10  # multiple of `block_seconds`, for abandoned code that blocks
NOT_AN_END = (OutcomeKind.PROGRESS, OutcomeKind.ALONE)
EXIT_BLOCKED = 70
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


def exit_code_for_signal(signal: str | None) -> int:
    """Return the exit code after a signal that interrupted jobs."""
    return EXIT_INTERRUPTED if signal == "SIGINT" else EXIT_TERMINATED


class Machine(Protocol):
    """The process of a worker."""

    def cpu_seconds(self) -> float:
        """Return user and system time so far."""
        ...

    def rss_bytes(self) -> int:
        """Return the resident memory in use now."""
        ...

    def stops(self) -> Sequence[tuple[str, float]]:
        """Return the stop signals received, with their monotonic times."""
        ...

    def stack(self) -> str:
        """Return the live stack of the thread that runs the worker's loop."""
        ...

    def stacks(self) -> list[ThreadStack]:
        """Return the live stacks of all threads of the process."""
        ...

    async def run_elsewhere(
        self, work: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> bool:
        """Run the work in another thread, wait at most `seconds`.

        Returns whether it has ended.
        """
        ...

    def end(self, code: int) -> None:
        """End the process now; in a program that embeds the worker, only report it."""
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
        outcomes: OutcomeBuffer,
        worker_id: Callable[[], int],
        time_out: Callable[[Attempt], AttemptEnd],
        stopped: Callable[[Attempt], AttemptEnd],
        hooks: HookRunner,
        deadlines: Deadlines,
        lag: LoopLag,
        block_seconds: float,
        grace_seconds: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._machine = machine
        self._running = running
        self._outcomes = outcomes
        self._worker_id = worker_id
        self._time_out = time_out
        self._stopped = stopped
        self._hooks = hooks
        self._deadlines = deadlines
        self._lag = lag
        self._block_seconds = block_seconds
        self._grace_seconds = grace_seconds
        self._watched = asyncio.get_running_loop()
        self._answered_at = clock.monotonic()
        self._has_reported = False
        self._has_ended = False
        self._silent_before = 0.0  # duration of this block at the last check

    async def run(self) -> None:
        self._answered_at = self._clock.monotonic()
        self._deadlines.on_loop_alive()  # a stall from now on is excused
        while True:
            asked_at = self._clock.monotonic()
            self._lag.asked()
            self._watched.call_soon_threadsafe(self._answer)
            await self._clock.sleep(self._block_seconds / LOOKS_PER_BLOCK)
            silent = self._clock.monotonic() - self._answered_at
            if self._answered_at >= asked_at:
                self._has_reported = self._has_ended = False
            elif silent >= self._block_seconds:
                await self._blocked(silent)

    def _answer(self) -> None:
        self._answered_at = self._clock.monotonic()
        self._lag.answered()
        self._deadlines.on_loop_alive()

    async def _blocked(self, seconds: float) -> None:
        before, blocking = self._deadlines.blocking_attempt, self._blocking_attempt()
        self._deadlines.blocking_attempt = blocking
        if blocking is not before and blocking is not None and self._has_reported:
            # One attempt blocks right after another: the time before is not charged to it.
            excuse(blocking, self._silent_before, is_bounded=False)
        self._silent_before = seconds
        is_running = (
            blocking is not None and self._running.get(blocking.claim.id) is blocking
        )
        if not self._has_reported:
            self._has_reported = True
            self._emit(
                "loop.blocked",
                seconds=round(seconds, 1),
                task=blocking.task if blocking else "",
                stack=self._machine.stack(),
            )
        if self._has_ended:
            return
        if blocking is not None and is_running and self._is_past_hard(blocking):
            await self._end(blocking)
        elif self._is_stop_due() or self._is_blocked_by_abandoned(blocking, seconds):
            await self._end(None)
        elif blocking is None and seconds > self._longest_limit():
            # The blocking attempt is unknown. End without writing, as in a crash: each
            # attempt is charged one loss, and the cause is found when it runs alone.
            self._has_ended = True
            self._machine.end(EXIT_BLOCKED)

    def _blocking_attempt(self) -> Attempt | None:
        """Return the attempt whose code blocks the loop, also in a task that it started."""
        current = asyncio.current_task(self._watched)
        return None if current is None else _attempt_of(current)

    def _is_blocked_by_abandoned(self, attempt: Attempt | None, seconds: float) -> bool:
        """Whether code of an abandoned attempt has blocked the loop for too long."""
        is_over = attempt is not None and attempt.is_over
        return is_over and seconds > ABANDONED_BLOCKS * self._block_seconds

    def _longest_limit(self) -> float:
        """Return the longest hard limit, by which any blocking attempt is past its own."""
        # No code runs yet of an attempt that has not begun: of a job that waits for
        # others of its batch, for example, which has no limits before its call begins.
        begun = [a for a in list(self._running.values()) if a.has_begun]
        limits = [a.limits.hard_seconds for a in begun]
        return max((limit or NEVER for limit in limits), default=NO_ATTEMPT_SECONDS)

    def _is_stop_due(self) -> bool:
        """Whether the process must end now for a signal that the loop cannot handle."""
        stops = self._machine.stops()
        if not stops:
            return False
        waited = self._clock.monotonic() - stops[0][1]
        return len(stops) > 1 or waited >= self._grace_seconds

    def _exit_code(self) -> int:
        stops = self._machine.stops()
        if not stops:
            return EXIT_BLOCKED
        return exit_code_for_signal(stops[0][0])

    def _is_past_hard(self, attempt: Attempt) -> bool:
        limits = attempt.limits
        if limits.hard_seconds is None:
            return False
        # The loop's own timer gets the first chance.
        passed = self._watched.time() - attempt.started - attempt.excused_seconds
        return passed - limits.hard_seconds > self._block_seconds

    async def _end(self, blocking: Attempt | None) -> None:
        """Write the last outcomes and end the process.

        `Machine.end` may return: in a program that embeds the worker. Then this is done
        once per block.
        """
        self._has_ended = True
        try:
            await self._write_last_outcomes(blocking)
        finally:  # also after an error: nothing else ends this process
            self._machine.end(self._exit_code())

    async def _write_last_outcomes(self, blocking: Attempt | None) -> None:
        ends: list[AttemptEnd] = []
        # An attempt that its own transaction recorded is already done.
        running = [a for a in list(self._running.values()) if a.recorded is None]
        together = () if blocking is None else blocking.together
        for each in together:
            if each.recorded is None:
                ends.append(self._time_out(each))
            # No later outcome of the attempt counts.
            each.interrupt_reason = InterruptReason.FENCED
        others = [a for a in running if a not in together]
        for other in others:
            other.interrupt_reason = other.interrupt_reason or InterruptReason.STOP
        ends += [self._stopped(other) for other in others]
        # Unsent outcomes and accepted ones wait for a loop that may never run again.
        events, ended = self._outcomes.take_events(), self._outcomes.drop()
        ends += [
            (e.outcome, e.accepted_event)
            for e in ended
            if e.outcome.kind not in NOT_AN_END
        ]
        try:
            async with asyncio.timeout(FINAL_WRITE_SECONDS):
                worker = self._worker_id()
                outcomes = [outcome for outcome, _ in ends]
                answers = await self._store.exchange(worker, outcomes, (), 0)
                # Claims that have not started go back with the lease.
                await self._store.leave(worker)
        except (StoreError, TimeoutError) as error:
            self._emit("store.failed", call="finish", error=str(error) or "no answer")
            for each in ended:  # in case the loop runs again
                self._outcomes.add(each)
        else:
            refused = {
                answer.id for answer in answers.rejected if not answer.already_stored
            }
            events += [e for o, e in ends if e and o.id not in refused]
        await self._notify(events)

    async def _notify(self, events: Sequence[JobEvent]) -> None:
        """Log the events and run their hooks in another thread: their loop is blocked."""
        runner = self._hooks.for_other_loop()

        async def report() -> None:
            self._emit.jobs(events)
            runner.notify(events)
            await runner.drain()

        if not await self._machine.run_elsewhere(report, FINAL_WRITE_SECONDS):
            self._emit("hook.failed", error="hooks were still running at the end")


def _attempt_of(task: "asyncio.Task[Any]") -> Attempt | None:
    """Return the attempt in whose context a task runs; called from another thread."""
    # Before Python 3.12 a task has no get_context(), but the collector can find it.
    for held in gc.get_referents(task):
        if isinstance(held, Context):
            attempt = held.get(in_job)
            return attempt if isinstance(attempt, Attempt) else None
    return None
