"""One call with many jobs: each job is an attempt of its own, and the call is shared.

Every job stays what it is alone: its lease, its number of attempts, its progress, its
cancel and its outcome are its own. What the jobs share is carried by the first of them:
the asyncio task or thread, the time limits and the log records.

A job whose cancel was requested stays in the call, because its item is in the list that
the function works on. Its result is ignored. When all jobs of a call are to be cancelled,
the call is.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from durio.model.errors import UsageError
from durio.model.job import Claim
from durio.model.timeout import NO_LIMITS, TimeLimits
from durio.ports.handler import Handler
from durio.worker.context import Context
from durio.worker.inflight import Attempt, AttemptEnvironment, InterruptReason
from durio.worker.transaction import TaskTransaction


class BatchItem(Attempt):
    """One job of a batch, gathered or in a call."""

    is_in_batch = True

    __slots__ = ("batch", "value")

    def __init__(
        self,
        claim: Claim,
        handler: Handler,
        started: float,
        runner: AttemptEnvironment,
        batch: "BatchCall",
    ) -> None:
        super().__init__(claim, handler, started, runner)
        self.batch = batch
        self.value: Any = None  # its argument, once it is decoded

    @property
    def limits(self) -> TimeLimits:
        """Those of the call."""
        return self.batch.limits

    @property
    def own_limits(self) -> TimeLimits:
        """The task's time limits, with the job's overrides."""
        return super().limits

    @property
    def together(self) -> Sequence[Attempt]:
        """All jobs of the call that have not ended."""
        return [item for item in self.batch.called if not item.is_over]

    def context(self) -> Context[Any]:
        """The Context of the call."""
        return self.batch.context()

    def own_context(self) -> Context[Any]:
        """The Context of this job, one of `ctx.jobs`."""
        context = super().context()
        if self.interrupt_reason is not None:
            context.cancelled = True
        return context

    def _own_plan(self) -> NoReturn:
        refuse_plan()

    def _set_result(self, value: object) -> NoReturn:
        refuse_result(value)

    def share(self, first: "BatchItem", now: float) -> None:
        """Begin in the asyncio task of the first job, and with its log records."""
        self.started, self.excused_seconds, self.has_begun = now, 0.0, True
        self.asyncio_task = first.asyncio_task
        self._records = first.records

    def interrupt(self, reason: InterruptReason) -> None:
        """Stop the call if that is wanted for all of its jobs; the first reason stays."""
        if self.is_over:
            return
        self.interrupt_reason = self.interrupt_reason or reason
        if self._context is not None:
            self._context.cancelled = True
        self.batch.interrupt(self, reason)

    def interrupt_call(self, reason: InterruptReason) -> None:
        """Cancel what this job carries for the call."""
        super().interrupt(reason)


class BatchCall:
    """The jobs of one call, from the first that is gathered to the last that ends."""

    def __init__(self, end_ungathered: Callable[[BatchItem], None]) -> None:
        self.items: list[BatchItem] = []  # all jobs, also those that ended before it
        self.called: list[BatchItem] = []  # those whose items the function gets
        self.limits = NO_LIMITS
        self.unended = 0  # jobs that have not ended; while there are any, it has a slot
        self.timer: asyncio.TimerHandle | None = None  # while jobs are gathered
        self.is_gathering = True
        self._end_ungathered = end_ungathered
        self._is_interrupted = False
        self._context: Context[Any] | None = None

    def begin(self, items: list[BatchItem], now: float) -> BatchItem:
        """Begin with these jobs; return the first, which carries what they share."""
        self.called, first = items, items[0]
        for item in items:
            item.share(first, now)
        limits = [item.own_limits for item in items]
        soft = [one.soft_seconds for one in limits if one.soft_seconds is not None]
        hard = [one.hard_seconds for one in limits if one.hard_seconds is not None]
        self.limits = TimeLimits(min(soft, default=None), min(hard, default=None))
        return first

    def interrupt(self, item: BatchItem, reason: InterruptReason) -> None:
        """Stop one of the jobs: end it now, or stop the call, or wait for the call's end."""
        if self.is_gathering:
            if reason is not InterruptReason.FENCED:
                self._end_ungathered(item)
            return
        if reason is InterruptReason.CANCEL and not self._is_cancelled:
            return
        if self._context is not None:
            self._context.cancelled = True
        if self.called and not self._is_interrupted:
            self._is_interrupted = True
            self.called[0].interrupt_call(reason)

    @property
    def _is_cancelled(self) -> bool:
        """Whether a cancel was requested for all jobs."""
        cancel = InterruptReason.CANCEL
        return all(
            one.interrupt_reason is cancel for one in self.items if not one.is_over
        )

    def context(self) -> Context[Any]:
        """Return the Context of the call: of its first job, except for `jobs`."""
        if self._context is None:
            first = self.called[0]
            own = first.own_context()
            self._context = BatchContext(
                self.called,
                job_id=first.claim.id,
                task=own.task,
                queue=own.queue,
                attempt=own.attempt,
                max_attempts=own.max_attempts,
                deadline_at=own.deadline_at,
                meta=own.meta,
                deps=own.deps,
                report=self._report,
                loop=first.runner.loop,
                transact=partial(TaskTransaction, first),
                give_result=refuse_result,
                make_plan=refuse_plan,
                spend=refuse_spend,
                tick=own.tick,
                states=first.state_changes(),
            )
        return self._context

    def _report(self, progress: bytes) -> None:
        """Report the progress of the call for each of its jobs."""
        for item in self.called:
            item.runner.report(item, progress)


class BatchContext(Context[Any]):
    """The Context of a call with many jobs."""

    __slots__ = ("_items",)

    def __init__(self, items: Sequence[BatchItem], **facts: Any) -> None:
        super().__init__(**facts)
        self._items = items

    @property
    def jobs(self) -> tuple[Context[Any], ...]:
        """The Context of each job, in the order of the items."""
        return tuple(item.own_context() for item in self._items)

    @property
    def idempotency_key(self) -> str:
        """Refused: another attempt of these jobs may be in other calls."""
        raise UsageError(
            "a batch has no idempotency key: its jobs may be in other calls next time",
            cure="Use that of a job: ctx.jobs[0].idempotency_key for the first item.",
        )


def refuse_plan() -> NoReturn:
    """Refuse `ctx.replace` and `ctx.add`."""
    raise UsageError(
        "a batch task cannot change a plan: its call has many jobs",
        cure="Enqueue other jobs with task.enqueue(...), or leave batch= out.",
    )


def refuse_result(value: object) -> NoReturn:
    """Refuse `ctx.result`, which is for `ctx.transaction()`."""
    del value
    raise UsageError(
        "a batch task returns its results: ctx.result() is for one job",
        cure="Return a list with one result for each item.",
    )


def refuse_spend(amount: object, budget: str | None) -> NoReturn:
    """Refuse `ctx.spend`, because each job of the call has an estimate of its own."""
    del amount, budget
    raise UsageError(
        "a batch task does not spend: its call has many jobs",
        cure="Report what each job has spent: ctx.jobs[0].spend(...) for the first item.",
    )
