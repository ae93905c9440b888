"""Run one call of a batch task; the outcome of each of its jobs is its own.

A job whose arguments cannot be decoded, or that was cancelled or has expired, ends before
the call, without an effect on the others. An exception of the call, and a result that is
no list of as many items, is the outcome of all jobs in it.
"""

from typing import Any

from durio.model.batch import error_of, item_ends, value_of
from durio.model.errors import InvalidArguments
from durio.model.ids import id_text
from durio.model.outcome import Reason
from durio.telemetry.log import in_job
from durio.worker.attempt import AttemptEnd, AttemptRunner
from durio.worker.batch_call import BatchCall, BatchItem
from durio.worker.inflight import InterruptReason, SoftLimitDriver

ItemEnd = tuple[BatchItem, AttemptEnd]


class BatchRunner(AttemptRunner):
    """Runs attempts, and calls that are attempts of many jobs."""

    def ends_before_call(
        self, batch: BatchCall
    ) -> tuple[list[BatchItem], list[ItemEnd]]:
        """Decode the items; return the jobs for the call, and the ends of the others."""
        ready: list[BatchItem] = []
        ends: list[ItemEnd] = []
        for item in batch.items:
            if item.is_over:
                continue  # fenced meanwhile
            end = self._ended_before(item) or self._unreadable(item)
            if end is None:
                ready.append(item)
            else:
                ends.append((item, end))
        return ready, ends

    def _unreadable(self, item: BatchItem) -> AttemptEnd | None:
        """Decode the item; return the end of the job if that fails."""
        if item.is_chunk:
            error = InvalidArguments(
                f"{item.task} has batch=, and this job has several calls",
                cure="Use task.map(...) instead of task.chunks(...).",
                task=item.task,
            )
            return self._dead(item, error, Reason.BAD_PAYLOAD)
        try:
            args, kwargs = item.handler.codec.decode(item.claim.payload)
        except BaseException as invalid:  # also errors of a type's own validator
            return self._dead(item, invalid, Reason.BAD_PAYLOAD)
        (item.value,) = (*args, *kwargs.values())
        return None

    async def call(self, items: list[BatchItem]) -> list[ItemEnd]:
        """Call the function with the items; return the end of each job."""
        first = items[0]
        in_job.set(first)
        if self._bind is not None:
            self._bind(
                job_id=id_text(first.job_id),
                task=first.task,
                queue=first.queue,
                attempt=first.number,
            )
        values = [item.value for item in items]
        try:
            made = self._call(first, [((values,), {})])
            returned = await SoftLimitDriver(made, first)
            ends = item_ends(returned, len(items), first.task)
        except BaseException as error:
            return self._all_failed(items, error)
        pairs = zip(items, ends, strict=True)
        return [(item, self._item_end(item, end)) for item, end in pairs]

    def _item_end(self, item: BatchItem, end: Any) -> AttemptEnd:
        if item.interrupt_reason is InterruptReason.CANCEL:
            return self.stopped(item)  # what the call did for this item is ignored
        error = error_of(end)
        if error is not None:
            return self._failed(item, error)
        return self._returned(item, value_of(end))

    def _all_failed(
        self, items: list[BatchItem], error: BaseException
    ) -> list[ItemEnd]:
        """Return the ends of a call that raised: each job has its own retry policy."""
        first, *others = items
        cause, trace, before = (
            error.__cause__,
            error.__traceback__,
            first.interrupt_reason,
        )
        ends = [(first, self._failed(first, error))]
        if before is None and first.interrupt_reason is InterruptReason.STOP:
            # The program ends, and that was reported once: give the others back.
            return ends + [(item, self._stopped_with(item)) for item in others]
        for item in others:
            # A Retry that was raised keeps no frames: the next job needs them again.
            error.__cause__, error.__traceback__ = cause, trace
            ends.append((item, self._failed(item, error)))
        return ends

    def _stopped_with(self, item: BatchItem) -> AttemptEnd:
        item.interrupt_reason = item.interrupt_reason or InterruptReason.STOP
        return self.stopped(item)
