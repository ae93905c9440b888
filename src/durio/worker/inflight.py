"""The state of one attempt, and how it is stopped from outside.

An attempt is interrupted for one of the reasons in `Why`. A soft limit is turned by the
driver below into SoftTimeLimit, inside the task; every other reason is a plain cancel.
What the task makes of it is its own business: one that returns a value although it was
cancelled is done, for the work is.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Protocol

from durio.model.job import Claim, attempt_number
from durio.model.names import queue_of
from durio.model.options import RowOptions, row_options
from durio.model.outcome import Keep, Outcome
from durio.model.retry import Retry
from durio.model.timeout import TimeLimits
from durio.ports.clock import Clock
from durio.ports.executor import Call, SoftTimeLimit
from durio.ports.handler import Handler
from durio.telemetry.log import log_lines, new_records
from durio.worker.context import Context
from durio.worker.transaction import Begin, TaskTransaction

NO_RESULT = object()


class Surroundings(Protocol):
    """What an attempt finds around it."""

    clock: Clock
    deps: Any
    keeps: Mapping[str, Keep]
    loop: asyncio.AbstractEventLoop
    report: "Callable[[Attempt, bytes], None]"
    begin: Begin | None

    def concluded(self, attempt: "Attempt") -> Outcome:
        """Its end, with the result that it was given."""
        ...


class Why(Enum):
    """Why an attempt is interrupted from outside."""

    CANCEL = "cancel"  # somebody asked: ends as cancelled
    STOP = "stop"  # the worker stops: given back, uncharged
    FENCED = "fenced"  # the lease is lost: nothing more may be written


class Attempt:
    """The state of one attempt."""

    __slots__ = (
        "_context",
        "_records",
        "call",
        "claim",
        "cold",
        "desk",
        "ended",
        "excused_seconds",
        "given",
        "handler",
        "has_begun",
        "is_over",
        "is_unsure",
        "limit_at",
        "progress",
        "recorded",
        "soft_hits",
        "started",
        "task_of_loop",
        "transaction",
        "why",
    )

    def __init__(
        self, claim: Claim, handler: Handler, started: float, desk: Surroundings
    ) -> None:
        self.claim = claim
        self.handler = handler
        self.started = started
        self.ended = started
        self.desk = desk
        # Options of its own are rare: decoded once, here.
        self.cold: RowOptions | None = (
            None if claim.opts is None else row_options(claim.opts)
        )
        self.limit_at = float("inf")
        self.excused_seconds = 0.0  # of its limits: the loop stood still
        self.has_begun = False
        self.is_over = False
        # See transaction.py: open now; committed, and so its end; perhaps committed.
        self.transaction: TaskTransaction | None = None
        self.recorded: Outcome | None = None
        self.is_unsure = False
        self.given: Any = NO_RESULT
        self.soft_hits = 0
        self.why: Why | None = None
        self.call: Call | None = None
        self.progress: bytes | None = None
        self.task_of_loop: asyncio.Task[None] | None = None
        self._context: Context[Any] | None = None
        self._records: deque[Any] | None = None

    # --- what log records carry

    @property
    def job_id(self) -> bytes:
        """Which job."""
        return self.claim.id

    @property
    def task(self) -> str:
        """Its task."""
        return self.claim.task

    @property
    def queue(self) -> str:
        """Its queue."""
        return queue_of(self.claim.lane)

    @property
    def number(self) -> int:
        """Which attempt, from 1."""
        return attempt_number(self.claim.retried, self.claim.losses)

    @property
    def records(self) -> deque[Any]:
        """Its last log records."""
        if self._records is None:
            self._records = new_records()
        return self._records

    def log_lines(self) -> list[str]:
        """Its last log lines, for a failure's record."""
        return [] if self._records is None else log_lines(self._records)

    # --- policies, with the job's own overrides

    @property
    def retry(self) -> Retry:
        """The task's policy, with the job's overrides."""
        if self.cold is None or self.cold.retry is None:
            return self.handler.retry
        return self.handler.retry.overridden(self.cold.retry)

    @property
    def limits(self) -> TimeLimits:
        """The task's time limits, or the job's own."""
        limits = self.handler.limits
        return limits if self.cold is None else self.cold.limits(limits)

    @property
    def keep(self) -> Keep | None:
        """Retention of the job once it is done or cancelled."""
        if self.cold is not None and self.cold.keep is not None:
            return Keep(*self.cold.keep)
        return self.handler.keep or self.desk.keeps.get(self.claim.lane)

    def context(self) -> Context[Any]:
        """The Context of this attempt, made when somebody asks for it."""
        if self._context is None:
            cold, desk = self.cold, self.desk
            hard, passed = self.limits.hard_seconds, desk.loop.time() - self.started
            self._context = Context(
                job_id=self.claim.id,
                task=self.claim.task,
                queue=self.queue,
                attempt=self.number,
                max_attempts=self.retry.max_attempts,
                deadline_at=None if hard is None else desk.clock.now() + hard - passed,
                meta=(cold and cold.meta) or {},
                deps=desk.deps,
                report=partial(desk.report, self),
                loop=desk.loop,
                transact=partial(TaskTransaction, self),
                give_result=self._give,
            )
        return self._context

    def _give(self, value: object) -> None:
        self.given = value

    # --- its own transaction

    def bench(self) -> Surroundings:
        """What is around it."""
        return self.desk

    def done(self) -> Outcome:
        """How it ends now, with the result that it was given."""
        return self.desk.concluded(self)

    # --- being stopped from outside

    def interrupt(self, why: Why) -> None:
        """Cancel the attempt for this reason; the first reason stays."""
        if self.is_over:
            return
        self.why = self.why or why
        if self._context is not None:
            self._context.cancelled = True
        if self.call is not None:
            # A thread: asked to cancel it has the token; otherwise it is interrupted.
            if why is not Why.CANCEL:
                self.call.interrupt(asyncio.CancelledError)
        elif self.has_begun and self.task_of_loop is not None:
            self.task_of_loop.cancel()

    def warn(self) -> None:
        """The soft limit: SoftTimeLimit inside the task."""
        if self.call is not None:
            self.call.interrupt(SoftTimeLimit)
        elif self.task_of_loop is not None:
            self.soft_hits += 1
            self.task_of_loop.cancel()

    def abandon(self) -> None:
        """Nobody waits for it any more: its thread no longer counts."""
        if self.call is not None:
            self.call.abandon()
        if self.transaction is not None:
            self.transaction.abandon()

    def meet(self, thrown: BaseException) -> BaseException:
        """What to throw into the task in place of what the loop threw."""
        if self.soft_hits and isinstance(thrown, asyncio.CancelledError):
            self.soft_hits -= 1
            if self.task_of_loop is not None:
                self.task_of_loop.uncancel()
            return SoftTimeLimit("the soft time limit is over: clean up")
        return thrown


class Driven:
    """Drives a coroutine so that a cancel can become SoftTimeLimit on its way in."""

    __slots__ = ("attempt", "coro")

    def __init__(self, coro: Any, attempt: Attempt) -> None:
        self.coro = coro
        self.attempt = attempt

    def __await__(self) -> Generator[Any, Any, Any]:
        coro, error = self.coro, None
        while True:
            try:
                waits_for = coro.send(None) if error is None else coro.throw(error)
            except StopIteration as stop:
                return stop.value
            error = None
            try:
                yield waits_for
            except GeneratorExit:
                coro.close()
                raise
            except BaseException as thrown:
                error = self.attempt.meet(thrown)
