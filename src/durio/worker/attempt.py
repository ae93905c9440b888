"""Run one attempt: decode, run the handler, catch everything; the result is an Outcome.

Whatever a task does, an attempt ends in a value. `BaseException` is caught inside the
coroutine, so that a task's SystemExit cannot stop the loop. Exceptions for control flow
(Retry, Retry.after, Snooze, Permanent, DeadLetter, Cancel) become outcomes here.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from durio.model.argument_codec import Arguments
from durio.model.decision import Decision, decide
from durio.model.errors import Control, HardTimeLimit, PayloadTooLarge, Permanent
from durio.model.expiry import job_expired
from durio.model.failure import encode_failure, failure_of
from durio.model.ids import id_text
from durio.model.outcome import KeepRule, Outcome, OutcomeKind, Reason
from durio.model.plan_payload import decode_chunk
from durio.model.retry import Retry
from durio.model.settings import Settings
from durio.model.transitions import LOST_MAX
from durio.ports.clock import Clock
from durio.ports.executor import ChildPool, Executor
from durio.ports.plan_maker import PlanMaker
from durio.telemetry.emit import JobEvent
from durio.telemetry.frames import OUR_FRAMES
from durio.telemetry.log import in_job, structlog_binder
from durio.telemetry.names import JOB_DEAD, JOB_FALTERED
from durio.worker.attempt_errors import (
    child_lost,
    control_error,
    is_from_keyboard,
    late_result_error,
    raise_error,
)
from durio.worker.attempt_event import event_of_outcome
from durio.worker.breaker_call import HeldBack, call_with_breaker, held_outcome
from durio.worker.breakers import Breakers
from durio.worker.done_outcome import done_outcome
from durio.worker.handler_call import call_handler
from durio.worker.inflight import NO_RESULT, Attempt, InterruptReason, SoftLimitDriver
from durio.worker.middleware import Middleware
from durio.worker.plan_changes import PlanChanges, is_plan_wrong
from durio.worker.spending import spend
from durio.worker.transaction import Begin

NO_VALUE = b"null"  # None, as a result
AttemptEnd = tuple[Outcome, JobEvent | None]  # the event is for when it is accepted


class AttemptRunner:
    """Runs attempts, and holds what all attempts of a worker share."""

    def __init__(  # noqa: PLR0913 - what all attempts share, in a worker or a child
        self,
        *,
        clock: Clock,
        executor: Executor,
        settings: Settings,
        middleware: Sequence[Middleware],
        keeps: Mapping[str, KeepRule],
        worker_name: str,
        report: Callable[[Attempt, bytes], None],
        plans: PlanMaker,
        begin: Begin | None = None,
        plan_changes: PlanChanges | None = None,
        child_pool: ChildPool | None = None,
        breakers: Breakers | None = None,
        loop_ended_message: str = "",
        is_first_in_child: Callable[[], bool] = lambda: False,
    ) -> None:
        self.clock = clock
        self.executor = executor
        self.settings = settings
        self.middleware = middleware
        self.keeps = keeps
        self.worker_name = worker_name
        self.report = report
        self.spend = spend
        self.plans = plans
        self.begin = begin  # None in a child, which has no transactions
        self.plan_changes = plan_changes  # None in a child
        self.child_pool = child_pool
        self.breakers = breakers  # None in a child, and without any
        # In a child: the error if its loop is ended; whether the attempt is its first.
        self._loop_ended_message = loop_ended_message
        self._is_first_in_child = is_first_in_child
        self.deps: Any = None
        self._worker_task: asyncio.Task[Any] | None = None
        self._bind = structlog_binder()
        self.loop = asyncio.get_running_loop()

    def start(self, deps: Any) -> None:
        """Prepare for attempts, in the task that runs the worker; `deps` is for contexts."""
        self.deps = deps
        self._worker_task = asyncio.current_task()

    async def make(self, attempt: Attempt) -> AttemptEnd:
        """Run the handler to its end; the event is reported when the store accepts."""
        coro = self._prepare(attempt)
        if isinstance(coro, tuple):
            return coro
        try:
            value = await SoftLimitDriver(coro, attempt)
        except BaseException as error:
            return self._failed(attempt, error)
        return self._returned(attempt, value)

    def first_step(
        self, attempt: Attempt, context: contextvars.Context
    ) -> AttemptEnd | SoftLimitDriver:
        """Run the handler in this context until it ends, or waits: then `rest` follows."""
        coro = self._prepare(attempt)
        if isinstance(coro, tuple):
            return coro
        try:
            return SoftLimitDriver(coro, attempt, context, coro.send(None))
        except StopIteration as stop:
            value = stop.value
        except BaseException as error:
            return self._failed(attempt, error)
        return self._returned(attempt, value)

    async def rest(
        self, driver: SoftLimitDriver, context: contextvars.Context
    ) -> AttemptEnd:
        """Run the handler from its first wait to its end."""
        try:
            value = await driver
        except BaseException as error:
            return self._failed(driver.attempt, error)
        return context.run(self._returned, driver.attempt, value)

    def _prepare(self, attempt: Attempt) -> Coroutine[Any, Any, Any] | AttemptEnd:
        """Return the coroutine of the handler's call, or the end if there is no call."""
        attempt.has_begun = True
        in_job.set(attempt)
        if self._bind is not None:
            self._bind(
                job_id=id_text(attempt.job_id),
                task=attempt.task,
                queue=attempt.queue,
                attempt=attempt.number,
            )
        handler = attempt.handler
        may_not_start = attempt.interrupt_reason or attempt.overrides
        if may_not_start and (ended := self._ended_before(attempt)) is not None:
            return ended
        if attempt.overrides is not None and attempt.is_chunk:
            return self._prepare_chunk(attempt)
        try:
            args, kwargs = handler.codec.decode(attempt.claim.payload)
        except BaseException as error:  # also errors of a type's own validator
            return self._dead(attempt, error, Reason.BAD_PAYLOAD)
        try:
            if not handler.is_async or self.middleware or handler.breaker:
                return self._call(attempt, [(args, kwargs)])
            if handler.takes_context:
                args = (attempt.context(), *args)
            return handler.function(*args, **kwargs)
        except BaseException as error:
            return self._failed(attempt, error)

    def _ended_before(self, attempt: Attempt) -> AttemptEnd | None:
        """Return the end of an attempt that was interrupted, or expired, before its start."""
        if attempt.interrupt_reason is not None:
            return self._failed(attempt, asyncio.CancelledError())
        if attempt.has_expired(self.clock.now()):
            return self._dead(attempt, job_expired(), Reason.EXPIRED)
        return None

    def _prepare_chunk(self, attempt: Attempt) -> Coroutine[Any, Any, Any] | AttemptEnd:
        try:
            calls = decode_chunk(attempt.handler.codec, attempt.claim.payload)
        except BaseException as error:
            return self._dead(attempt, error, Reason.BAD_PAYLOAD)
        return self._call(attempt, calls)

    def _call(
        self, attempt: Attempt, calls: Sequence[Arguments]
    ) -> Coroutine[Any, Any, Any]:
        """Return the call of the handler, behind its breaker if it has one."""
        call, name = (
            partial(call_handler, self, attempt, calls),
            attempt.handler.breaker,
        )
        if name is None or self.breakers is None:
            return call()
        return call_with_breaker(self.breakers, attempt, name, call)

    def _returned(self, attempt: Attempt, value: Any) -> AttemptEnd:
        results = attempt.handler.codec.result
        try:
            if attempt.plan is not None:
                result = attempt.plan.result(value, results.encode)
            elif attempt.overrides is not None and attempt.is_chunk:
                result = b"[" + b",".join(map(results.encode, value)) + b"]"
            else:
                result = results.encode(value)
        except BaseException as error:
            return self._failed(attempt, error)
        return self._done(attempt, result)

    # --- ends

    def _done(self, attempt: Attempt, result: bytes) -> AttemptEnd:
        if attempt.recorded is not None:
            if result in (NO_VALUE, attempt.recorded.result):
                return attempt.recorded, None
            return self._faltered(attempt, late_result_error(attempt.task))
        try:
            return done_outcome(attempt, result, self.settings), None
        except PayloadTooLarge as error:
            return self._dead(attempt, error, Reason.PERMANENT)

    def final_outcome(self, attempt: Attempt) -> Outcome:
        """Return the outcome with the result given so far, before the transaction commits.

        A result that is missing, does not fit or is too large is not retried.
        """
        results, value = attempt.handler.codec.result, attempt.given_result
        try:
            result = None if attempt.plan is None else attempt.plan.replaced
            if result is None:
                if value is NO_RESULT:
                    results.check_missing()
                    value = None
                result = results.encode(value)
            return done_outcome(attempt, result, self.settings)._replace(
                progress=attempt.progress
            )
        except PayloadTooLarge as error:
            raise Permanent(error.what) from error

    def _faltered(self, attempt: Attempt, error: BaseException) -> AttemptEnd:
        """End the job as done: the task failed after its own commit. Report the error."""
        done = attempt.recorded
        outcome = done or done_outcome(attempt, NO_VALUE, self.settings)
        if attempt.interrupt_reason is not None:
            return outcome, None  # the worker stopped the task
        failure = failure_of(error, hidden=OUR_FRAMES)
        event = self._event(attempt, outcome)._replace(
            name=JOB_FALTERED,
            error_type=failure.type,
            error=failure.message,
            traceback=failure.traceback,
        )
        return outcome, event

    def _failed(self, attempt: Attempt, error: BaseException) -> AttemptEnd:
        """Apply the retry policy, unless the worker stopped the attempt itself."""
        if attempt.recorded is not None:
            return self._faltered(attempt, error)
        claim = attempt.claim
        if isinstance(error, asyncio.CancelledError) and self._is_loop_ending():
            if self._loop_ended_message and attempt.interrupt_reason is None:
                return self.lost(
                    attempt,
                    self._loop_ended_message,
                    "",
                    is_cause=self._is_first_in_child(),
                )
            attempt.interrupt_reason = attempt.interrupt_reason or InterruptReason.STOP
        if isinstance(error, KeyboardInterrupt) and is_from_keyboard(error):
            attempt.interrupt_reason = attempt.interrupt_reason or InterruptReason.STOP
            self.loop.call_soon(raise_error, error)  # Ctrl-C is for the whole program
        if attempt.interrupt_reason is not None and not isinstance(error, Control):
            # An error that the attempt raised while it was stopped is not charged.
            kind = (
                OutcomeKind.CANCEL
                if attempt.interrupt_reason is InterruptReason.CANCEL
                else OutcomeKind.RELEASE
            )
            keep = attempt.keep_if_cancelled
            outcome = Outcome(claim.id, claim.claim_no, kind, keep=keep)
            return outcome, self._event(attempt, outcome)
        if isinstance(error, HeldBack):
            return self._held_back(attempt, error)
        raised = control_error(error)
        return self._decided(attempt, error, self._decision(attempt, raised))

    def _held_back(self, attempt: Attempt, error: HeldBack) -> AttemptEnd:
        outcome = held_outcome(attempt, error)
        return outcome, self._event(attempt, outcome)._replace(reason=error.reason)

    def _decision(self, attempt: Attempt, error: BaseException) -> Decision:
        decision = decide(
            error, attempt.retry, attempt.decision_inputs(), attempt.error_rules
        )
        if decision.kind is not OutcomeKind.RETRY or attempt.overrides is None:
            return decision
        # No attempt could begin in time: what depends on the job need not wait for that.
        expires = attempt.has_expired(self.clock.now() + decision.delay_seconds)
        return Decision(OutcomeKind.DEAD, 0.0, Reason.EXPIRED) if expires else decision

    def _is_loop_ending(self) -> bool:
        """Whether the whole event loop is ending, which cancels the worker's task too."""
        task = self._worker_task
        return task is not None and task.cancelling() > 0

    def timed_out(self, attempt: Attempt) -> AttemptEnd:
        """Return the outcome of an attempt past its hard limit; its code may still run."""
        seconds = self.loop.time() - attempt.started
        error = HardTimeLimit(
            f"{attempt.task} ran past its hard time limit ({seconds:.3g} s)",
            cure="Raise timeout=, or make the task stop at SoftTimeLimit.",
        )
        return self._failed(attempt, error)

    def refused(self, attempt: Attempt, error: BaseException) -> AttemptEnd:
        """Return the outcome of an attempt whose plan could not be changed."""
        if is_plan_wrong(error):
            return self._dead(attempt, error, Reason.PLAN_REFUSED)
        return self._decided(attempt, error, self._decision(attempt, attempt.retry))

    def stopped(self, attempt: Attempt) -> AttemptEnd:
        """Return the outcome of an attempt that the worker stopped from outside."""
        return self._failed(attempt, asyncio.CancelledError())

    def lost(
        self, attempt: Attempt, how: str, stack: str, *, is_cause: bool
    ) -> AttemptEnd:
        """Return the outcome of an attempt whose child process died: one loss.

        Earlier jobs of the same child may have damaged it. So the loss counts towards death
        only if this job was the first one there (`is_cause`).
        """
        claim = attempt.claim
        failure = child_lost(attempt, how, stack, self.clock.now(), self.worker_name)
        outcome = Outcome(
            claim.id,
            claim.claim_no,
            OutcomeKind.LOST,
            error=encode_failure(failure),
            killed_process=is_cause,
        )
        event = self._event(attempt, outcome)._replace(
            error_type=failure.type, error=failure.message, traceback=stack
        )
        if is_cause and claim.lost >= LOST_MAX - 1:
            event = event._replace(name=JOB_DEAD, reason=Reason.WORKER_LOST)
        return outcome, event

    def unsendable(
        self, attempt: Attempt, outcome: Outcome, error: Exception
    ) -> AttemptEnd:
        """Return a dead outcome: a child could not send its own. The task's error is kept."""
        dead, event = self._dead(attempt, error, Reason.PERMANENT)
        return dead._replace(error=outcome.error or dead.error), event

    def _dead(self, attempt: Attempt, error: BaseException, reason: str) -> AttemptEnd:
        return self._decided(attempt, error, Decision(OutcomeKind.DEAD, 0.0, reason))

    def _decided(
        self, attempt: Attempt, error: BaseException, decision: Decision
    ) -> AttemptEnd:
        claim, kind = attempt.claim, decision.kind
        cause = (
            error.__cause__ if isinstance(error, Control) and error.__cause__ else error
        )
        failure = failure_of(
            cause,
            attempt=attempt.number,
            at=self.clock.now(),
            worker=self.worker_name,
            logs=attempt.log_lines(),
            hidden=OUR_FRAMES,
            decision=decision.text,
        )
        outcome = Outcome(
            claim.id,
            claim.claim_no,
            kind,
            keep=attempt.keep_if_cancelled if kind is OutcomeKind.CANCEL else None,
            delay_seconds=decision.delay_seconds,
            error=encode_failure(failure) if decision.keeps_error else None,
            reason=decision.reason,
        )
        event = self._event(attempt, outcome)
        if isinstance(error, Retry):  # a constant may be raised again: keep no frames
            error.__traceback__ = error.__context__ = error.__cause__ = None
        if decision.max_attempts:
            event = event._replace(max_attempts=decision.max_attempts)
        if decision.keeps_error:
            event = event._replace(
                error_type=failure.type,
                error=failure.message,
                traceback=failure.traceback,
                decision=failure.decision,
            )
        return outcome, event

    def _event(self, attempt: Attempt, outcome: Outcome) -> JobEvent:
        passed = self.loop.time() - attempt.started
        return event_of_outcome(attempt, outcome, passed, self.worker_name)
