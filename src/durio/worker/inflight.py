"""The state of one attempt, and how it is stopped from outside.

An attempt is interrupted for one of the reasons in `InterruptReason`, by a plain cancel. A
soft limit is a cancel too: `SoftLimitDriver` turns it into SoftTimeLimit inside the task. A
task that is cancelled and still returns a value is done, because its work is complete.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Protocol

from durio.model.decision import DecisionInputs
from durio.model.error_rules import ErrorRules
from durio.model.errors import UsageError
from durio.model.job import Claim, attempt_number
from durio.model.job_states import StateChanges
from durio.model.names import queue_of
from durio.model.options import RowOptions, row_options
from durio.model.outcome import KeepRule, Outcome
from durio.model.retry import Retry
from durio.model.settings import Settings
from durio.model.tick import tick_of
from durio.model.timeout import TimeLimits
from durio.ports.clock import Clock
from durio.ports.executor import SoftTimeLimit, ThreadCallHandle
from durio.ports.handler import Handler
from durio.ports.plan_maker import PlanMaker
from durio.telemetry.log import log_lines, new_records
from durio.worker.attempt_plan import AttemptPlan
from durio.worker.breakers import Breakers
from durio.worker.context import Context
from durio.worker.plan_changes import PlanChanges
from durio.worker.transaction import Begin, TaskTransaction

NO_RESULT = object()


class AttemptEnvironment(Protocol):
    """The parts of a worker or child that its attempts use."""

    clock: Clock
    settings: Settings
    deps: Any
    keeps: Mapping[str, KeepRule]
    loop: asyncio.AbstractEventLoop
    report: "Callable[[Attempt, bytes], None]"
    spend: "Callable[[Attempt, object, str | None], None]"
    begin: Begin | None
    plans: PlanMaker
    plan_changes: PlanChanges | None
    breakers: Breakers | None

    def final_outcome(self, attempt: "Attempt") -> Outcome:
        """Return the outcome with the result given so far, before the transaction commits."""
        ...


class InterruptReason(Enum):
    """Why an attempt is interrupted from outside."""

    CANCEL = "cancel"  # requested by a caller: ends as cancelled
    STOP = "stop"  # the worker stops: given back, uncharged
    FENCED = "fenced"  # the lease is lost: nothing more may be written


class Attempt:
    is_in_batch = False  # whether it shares its call with others: see batch_call.py

    __slots__ = (
        "_context",
        "_records",
        "asyncio_task",
        "call",
        "claim",
        "ended",
        "excused_seconds",
        "given_result",
        "handler",
        "has_begun",
        "has_waited",
        "interrupt_reason",
        "is_commit_unknown",
        "is_over",
        "limit_at",
        "overrides",
        "plan",
        "progress",
        "recorded",
        "runner",
        "slot_taken_at",
        "soft_hits",
        "spent",
        "started",
        "transaction",
    )

    def __init__(
        self, claim: Claim, handler: Handler, started: float, runner: AttemptEnvironment
    ) -> None:
        self.claim = claim
        self.handler = handler
        self.slot_taken_at = started
        self.started = started  # set again when its first step runs
        self.ended = started
        self.runner = runner
        # Few jobs have options of their own; decode them once, here.
        self.overrides: RowOptions | None = (
            None if claim.opts is None else row_options(claim.opts)
        )
        self.limit_at = float("inf")
        # Time that its limits do not count: the loop was blocked.
        self.excused_seconds = 0.0
        self.has_begun = False
        self.has_waited = False  # the event loop ran something else meanwhile
        self.is_over = False
        # See transaction.py: the open transaction; the outcome that it committed; whether
        # it is unknown if the commit succeeded.
        self.transaction: TaskTransaction | None = None
        self.recorded: Outcome | None = None
        self.is_commit_unknown = False
        self.given_result: Any = NO_RESULT
        self.plan: AttemptPlan | None = None  # what it asks of its plan, if anything
        self.spent: dict[str, float] | None = None  # by budget
        self.soft_hits = 0
        self.interrupt_reason: InterruptReason | None = None
        self.call: ThreadCallHandle | None = None
        self.progress: bytes | None = None
        self.asyncio_task: asyncio.Task[None] | None = None
        self._context: Context[Any] | None = None
        self._records: deque[Any] | None = None

    @property
    def together(self) -> "Sequence[Attempt]":
        """The attempts that end with this one, because they share one call."""
        return (self,)

    # --- what log records carry

    @property
    def job_id(self) -> bytes:
        return self.claim.id

    @property
    def task(self) -> str:
        return self.claim.task

    @property
    def is_process(self) -> bool:
        return self.handler.is_process

    @property
    def queue(self) -> str:
        return queue_of(self.claim.lane)

    @property
    def number(self) -> int:
        """The number of the attempt, from 1."""
        return attempt_number(self.claim.retried, self.claim.losses)

    @property
    def records(self) -> deque[Any]:
        """The attempt's latest log records; the deque is created on first use."""
        if self._records is None:
            self._records = new_records()
        return self._records

    def log_lines(self) -> list[str]:
        """Return the attempt's latest log lines, to store with a failure."""
        return [] if self._records is None else log_lines(self._records)

    @property
    def is_node(self) -> bool:
        """Whether the job is a node of a plan."""
        return self.overrides is not None and self.overrides.plan is not None

    @property
    def keep_if_cancelled(self) -> KeepRule | None:
        """Its own retention; a node is kept like dead ones: both are retried together."""
        seconds = self.runner.settings.retention.dead_seconds
        return KeepRule(seconds) if self.is_node else self.keep

    @property
    def is_chunk(self) -> bool:
        """Whether the job makes several calls, one after the other."""
        return self.overrides is not None and self.overrides.is_chunk

    @property
    def budgets(self) -> Mapping[str, tuple[str, float]]:
        """The gates and the estimates of its budgets."""
        return (self.overrides and self.overrides.budgets) or {}

    def has_expired(self, at: float) -> bool:
        """Whether no attempt of the job may begin at this time."""
        expires = None if self.overrides is None else self.overrides.expires
        return expires is not None and at >= expires

    # --- policies, with the job's own overrides

    @property
    def retry(self) -> Retry:
        """The task's policy, with the job's overrides."""
        if self.overrides is None or self.overrides.retry is None:
            return self.handler.retry
        return self.handler.retry.overridden(self.overrides.retry)

    def decision_inputs(self) -> DecisionInputs:
        """Return what a decision about a failure of this attempt depends on."""
        clock, worker = self.runner.clock, self.runner.settings.worker
        return DecisionInputs(
            retried=self.claim.retried,
            snoozed=self.claim.snoozed,
            share=clock.random(),
            now=clock.now(),
            retry_after_max_seconds=worker.retry_after_max_seconds,
        )

    @property
    def error_rules(self) -> ErrorRules:
        """The task's rules; a policy of the job replaces their numbers for transient errors."""
        rules = self.handler.errors
        if self.overrides is None or self.overrides.retry is None:
            return rules
        return rules.without_transient()

    @property
    def limits(self) -> TimeLimits:
        """The task's time limits, with the job's overrides."""
        limits = self.handler.limits
        return limits if self.overrides is None else self.overrides.limits(limits)

    @property
    def keep(self) -> KeepRule | None:
        """Retention of the job once it is done or cancelled."""
        if self.overrides is not None and self.overrides.keep is not None:
            return KeepRule(*self.overrides.keep)
        return self.handler.keep or self.runner.keeps.get(self.claim.lane)

    def context(self) -> Context[Any]:
        """The Context of this attempt, created on first use."""
        if self._context is None:
            overrides, environment = self.overrides, self.runner
            hard, passed = (
                self.limits.hard_seconds,
                environment.loop.time() - self.started,
            )
            self._context = Context(
                job_id=self.claim.id,
                task=self.claim.task,
                queue=self.queue,
                attempt=self.number,
                max_attempts=self.retry.max_attempts,
                deadline_at=None
                if hard is None
                else environment.clock.now() + hard - passed,
                meta=(overrides and overrides.meta) or {},
                deps=environment.deps,
                report=partial(environment.report, self),
                loop=environment.loop,
                transact=partial(TaskTransaction, self),
                give_result=self._set_result,
                make_plan=self._own_plan,
                spend=partial(environment.spend, self),
                tick=tick_of(overrides.tick) if overrides is not None else None,
                states=self.state_changes(),
            )
        return self._context

    def state_changes(self) -> StateChanges:
        clock, handler = self.runner.clock, self.handler
        return StateChanges(handler.task, handler.states, clock.now)

    def _own_plan(self) -> AttemptPlan:
        if self.recorded is not None:
            raise UsageError(
                "this job is done: its ctx.transaction() has committed",
                cure="Call ctx.replace() or ctx.add() inside the block.",
            )
        if self.plan is not None:
            return self.plan
        if self.is_chunk:
            raise UsageError(
                "a job of several calls cannot change its plan",
                cure="Use task.map(...) instead of task.chunks(...).",
            )
        self.plan = AttemptPlan(self.runner.plans, has_plan=self.is_node)
        return self.plan

    def _set_result(self, value: object) -> None:
        self.given_result = value

    # --- the task's own transaction

    def environment(self) -> AttemptEnvironment:
        return self.runner

    async def done(self) -> Outcome:
        """Return the outcome as if the attempt ended now, with the result given so far."""
        outcome = self.runner.final_outcome(self)
        changes = self.runner.plan_changes
        if outcome.change is None or changes is None:
            return outcome
        return await changes.resolved_in_block(self, outcome)

    # --- stopping from outside

    def interrupt(self, reason: InterruptReason) -> None:
        """Cancel the attempt for this reason; the first reason stays."""
        if self.is_over:
            return
        self.interrupt_reason = self.interrupt_reason or reason
        if self._context is not None:
            self._context.cancelled = True
        if self.call is not None:
            # In a thread a cancel only sets a flag; other reasons interrupt the thread.
            if reason is not InterruptReason.CANCEL:
                self.call.interrupt(asyncio.CancelledError)
        elif self.has_begun and self.asyncio_task is not None:
            self.asyncio_task.cancel()

    def warn(self) -> None:
        """Raise SoftTimeLimit inside the task, because the soft limit has passed."""
        if self.call is not None:
            self.call.interrupt(SoftTimeLimit)
        elif self.asyncio_task is not None:
            self.soft_hits += 1
            self.asyncio_task.cancel()

    def abandon(self) -> None:
        """Stop waiting for the attempt: free its thread's place, roll back its transaction."""
        if self.call is not None:
            self.call.abandon()
        if self.transaction is not None:
            self.transaction.abandon()

    def translate_cancel(self, thrown: BaseException) -> BaseException:
        """Return SoftTimeLimit if the soft limit caused this cancel, else the thrown error."""
        if self.soft_hits and isinstance(thrown, asyncio.CancelledError):
            self.soft_hits -= 1
            if self.asyncio_task is not None:
                self.asyncio_task.uncancel()
            return SoftTimeLimit("the soft time limit has passed: clean up")
        return thrown


class SoftLimitDriver:
    """Drives a coroutine so that a cancel can be thrown into it as SoftTimeLimit.

    With a `context`, the coroutine has made its first step there and waits for `waits_for`.
    """

    __slots__ = ("attempt", "context", "coro", "waits_for")

    def __init__(
        self,
        coro: Any,
        attempt: Attempt,
        context: contextvars.Context | None = None,
        waits_for: Any = None,
    ) -> None:
        self.coro = coro
        self.attempt = attempt
        self.context = context
        self.waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        coro, error = self.coro, None
        send, throw, waits_for = coro.send, coro.throw, self.waits_for
        try:
            if self.context is None:
                waits_for = send(None)
            else:
                send = partial(self.context.run, send)
                throw = partial(self.context.run, throw)
            self.attempt.has_waited = True
            while True:
                error = None
                try:
                    yield waits_for
                except GeneratorExit:
                    coro.close()
                    raise
                except BaseException as thrown:
                    error = self.attempt.translate_cancel(thrown)
                waits_for = send(None) if error is None else throw(error)
        except StopIteration as stop:
            return stop.value
