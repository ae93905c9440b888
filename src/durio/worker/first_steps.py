"""Run async tasks in place until they end or first wait.

Most short tasks never wait. So one asyncio task, the carrier, runs attempts one after the
other, each in a contextvars context of its own. An attempt that waits keeps the carrier as
its own asyncio task to the end, and another carrier runs the attempts behind it. A task
whose last attempt waited gets an asyncio task at once, unless earlier attempts are queued
here: attempts start in the order of their claims.

Code in an attempt sees what it would see in an asyncio task of its own. A carrier that an
attempt has changed, or still refers to, is not used for another attempt: `current_task()`
may be the key of a session registry, for example.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from sys import getrefcount
from typing import Any, cast
from weakref import getweakrefcount

from durio.model.outcome import Outcome
from durio.ports.clock import Clock
from durio.telemetry.emit import JobEvent
from durio.telemetry.log import in_job
from durio.worker.attempt import AttemptRunner
from durio.worker.inflight import Attempt, SoftLimitDriver
from durio.worker.worker_config import WorkerIdentity

SLICE_SECONDS = 0.001  # then the loop gets a turn


class LeaseCheck:
    """Whether attempts may start: not when another worker may have their jobs.

    A process that was suspended knows by its clock that its lease may have ended. Its next
    renewal, which may take seconds, renews the lease or reports the loss. Until then claims
    that have not started are given back; the store refuses that if they are lost.
    """

    def __init__(
        self, identity: WorkerIdentity, clock: Clock, lease_seconds: float
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._loop = asyncio.get_running_loop()
        self._lasts_until = float("-inf")  # or longer: by the loop's time

    @property
    def is_over(self) -> bool:
        """Whether the lease has ended, unless it was renewed and no reply has come."""
        now = self._loop.time()
        if now < self._lasts_until:
            return False
        age_seconds = self._clock.monotonic() - self._identity.renewed_at
        left_seconds = self._lease_seconds - age_seconds
        self._lasts_until = now + left_seconds
        return left_seconds <= 0


class Carrier(asyncio.Task[None]):
    """An asyncio task that runs attempts one after the other, and sees new attributes."""

    has_new_attributes = False

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__("has_new_attributes", True)
        super().__setattr__(name, value)


class FirstSteps:
    """The attempts that have a slot, before their first step."""

    def __init__(
        self,
        runner: AttemptRunner,
        begin: Callable[[Attempt, float], None],
        end: Callable[[Attempt, Outcome, JobEvent | None], None],
    ) -> None:
        self._runner = runner
        self._begin = begin
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # of the worker; attempts get copies
        self._waiting: deque[Attempt] = deque()
        self._carrier: Carrier | None = None  # that runs `_waiting`
        self._has_middleware = bool(runner.middleware)
        self._suspending: set[str] = set()  # tasks whose last attempt waited

    def start(self, attempt: Attempt) -> None:
        """Run the attempt in this turn of the loop or the next one."""
        if self._carrier is None and self._needs_task(attempt):
            self._start_task(attempt)
            return
        self._waiting.append(attempt)
        if self._carrier is None:
            self._carrier = self._new_carrier()

    def _needs_task(self, attempt: Attempt) -> bool:
        return (
            self._has_middleware
            or not attempt.handler.is_async
            or attempt.claim.task in self._suspending
        )

    def _start_task(self, attempt: Attempt) -> None:
        attempt.asyncio_task = asyncio.Task(
            self._run(attempt), loop=self._loop, context=self._context.copy()
        )

    def _new_carrier(self) -> Carrier:
        context = self._context.copy()
        return Carrier(self._run_waiting(), loop=self._loop, context=context)

    async def _run(self, attempt: Attempt) -> None:
        """Run one attempt in an asyncio task of its own."""
        self._begin(attempt, self._loop.time())
        outcome, event = await self._runner.make(attempt)
        if not attempt.has_waited:
            self._suspending.discard(attempt.claim.task)
        if (
            not attempt.is_over
        ):  # else abandoned or fenced: its outcome no longer counts
            self._end(attempt, outcome, event)

    async def _run_waiting(self) -> None:
        """Run attempts until one of them waits, 1 ms has passed, or none is left."""
        carrier = cast("Carrier", asyncio.current_task())
        waiting, runner = self._waiting, self._runner
        now = self._loop.time()
        until = now + SLICE_SECONDS
        unused = marks_of(carrier)
        try:
            while waiting:
                attempt = waiting.popleft()
                if attempt.is_over:
                    continue  # abandoned or fenced before it began
                attempt.asyncio_task = carrier
                self._begin(attempt, now)
                in_job.set(
                    attempt
                )  # for the watchdog, which sees the carrier's context
                context = copy_context()
                ended = context.run(runner.first_step, attempt, context)
                if isinstance(ended, SoftLimitDriver):
                    self._suspending.add(attempt.claim.task)
                    self._leave(carrier)
                    ended = await runner.rest(ended, context)
                    if not attempt.is_over:
                        self._end(attempt, *ended)
                    return
                attempt.asyncio_task = None
                if not attempt.is_over:
                    self._end(attempt, *ended)
                now = attempt.ended
                if now > until or marks_of(carrier) != unused:
                    return
        finally:
            self._leave(carrier)

    def _leave(self, carrier: Carrier) -> None:
        """Let another asyncio task run the attempts that wait."""
        if self._carrier is not carrier:
            return
        self._carrier, waiting = None, self._waiting
        while waiting and self._needs_task(waiting[0]):
            self._start_task(waiting.popleft())
        if waiting:
            self._carrier = self._new_carrier()


def marks_of(task: Carrier) -> tuple[Any, ...]:
    """Return what changes when code keeps or changes the asyncio task that it runs in."""
    return (
        getrefcount(task),
        getweakrefcount(task),
        task.cancelling(),
        getattr(task, "_must_cancel"),  # noqa: B009 - stays set after `uncancel`
        task.get_name(),
        getattr(task, "_callbacks"),  # noqa: B009 - typeshed does not know it
        task.has_new_attributes,
    )
