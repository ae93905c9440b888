"""Gather the jobs of batch tasks: one slot, one call, many jobs.

The first job of a batch takes a slot and waits there. Other claims of the same task and
queue join it without a slot, also claims that wait for one. The call begins when the batch
is full, or when the first job has waited for long enough.

The slots count running jobs, so each job that joins adds one to their capacity, and takes
it away when it ends. The slot is free when the last job of the batch has ended.

A worker with few free slots claims few jobs. To fill a batch it makes exchanges that claim
jobs of this task only (`next_fill`), so that it reserves no other jobs beyond its slots.
They are made when a wakeup or a full reply says that there may be more jobs. In a queue
with many other jobs such a search takes long. If it took over 20 ms and found fewer jobs
than it looked for, the next one comes after 20 times as long.
"""

import asyncio
from collections.abc import Iterable
from contextvars import copy_context
from typing import NamedTuple, Protocol

from durio.model.batch import Batch
from durio.model.errors import InvariantBroken
from durio.model.job import Claim
from durio.model.outcome import Outcome
from durio.ports.exchange import Lane
from durio.ports.handler import Handler
from durio.telemetry.emit import JobEvent
from durio.worker.batch_call import BatchCall, BatchItem
from durio.worker.batch_runner import BatchRunner
from durio.worker.deadline import Deadlines
from durio.worker.first_steps import LeaseCheck
from durio.worker.inflight import Attempt, InterruptReason
from durio.worker.lanes import ClaimBuffer, Quotas
from durio.worker.unrunnable import TaskVersions

# A search that took longer, and found too little, is repeated after a pause only.
SLOW_FILL_SECONDS = 0.02
FILL_PAUSES = 20  # the pause, in times of the search
Place = tuple[str, str]  # the task and the lane of a batch


class BatchSlots(Protocol):
    """The part of the slots that batches use."""

    capacity: int
    lease: LeaseCheck
    reports_started: bool
    deadlines: Deadlines

    @property
    def running(self) -> dict[bytes, Attempt]: ...

    @property
    def buffer(self) -> ClaimBuffer: ...

    def start(self, claim: Claim) -> None:
        """Start a claim, or let it join a batch."""
        ...

    def record_end(
        self, attempt: Attempt, outcome: Outcome, event: JobEvent | None
    ) -> None: ...

    def report_started(self, attempt: Attempt) -> None: ...


class Fill(NamedTuple):
    """An exchange that claims jobs for open batches."""

    lanes: list[Lane]
    want: int
    tasks: list[str]


class Batches:
    """The batches of a worker that have not ended."""

    def __init__(
        self,
        slots: BatchSlots,
        runner: BatchRunner,
        versions: TaskVersions,
        quotas: Quotas | None,
    ) -> None:
        self._slots = slots
        self._runner = runner
        self._versions = versions
        self._quotas = quotas
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # of the worker; calls get copies
        self.open: dict[Place, BatchCall] = {}  # those that take more jobs; mostly none
        self._running: set[asyncio.Task[None]] = set()
        self._no_fill_until = 0.0

    # --- gathering

    def take(self, claim: Claim, handler: Handler, *, is_alone: bool) -> None:
        """Let a claim join the open batch of its task, or open one in a free slot."""
        place = (claim.task, claim.lane)
        found = None if is_alone else self.open.get(place)
        batch = found or BatchCall(self._end_ungathered)
        # First, because the stored options of the job may be damaged.
        item = BatchItem(claim, handler, self._loop.time(), self._runner, batch)
        if found is not None:
            self._slots.capacity += 1
        elif self._quotas is not None:
            self._quotas.starts(claim)
        batch.items.append(item)
        batch.unended += 1
        self._slots.running[claim.id] = item
        rule = rule_of(handler)
        if is_alone or len(batch.items) >= rule.size:
            self._begin(batch)
        elif found is None:
            self.open[place] = batch
            batch.timer = self._loop.call_later(rule.wait_seconds, self._begin, batch)
            self.draw()

    def draw(self) -> None:
        """Let claims that wait for a slot join open batches."""
        room = {place: _room(batch) for place, batch in self.open.items()}
        chosen: set[bytes] = set()
        for claim in self._slots.buffer:
            place = (claim.task, claim.lane)
            if room.get(place):
                room[place] -= 1
                chosen.add(claim.id)
        for claim in self._slots.buffer.take_out(chosen):
            self._slots.start(claim)

    def begin_open(self) -> None:
        """Begin the calls of all open batches with the jobs that they have."""
        for batch in list(self.open.values()):
            self._begin(batch)

    def give_back(self, lanes: Iterable[str] | None = None) -> None:
        """Give back, uncharged, jobs of these lanes whose call has not begun."""
        for (_, lane), batch in list(self.open.items()):
            if lanes is None or lane in lanes:
                _give_back(batch)

    def drop_all(self) -> None:
        """Forget all batches: the lease is lost. Their jobs were interrupted before."""
        for batch in list(self.open.values()):
            self._close(batch)

    def _end_ungathered(self, item: BatchItem) -> None:
        """End a job that was cancelled or is given back before its call."""
        batch = item.batch
        batch.items.remove(item)
        if not batch.items:
            self._close(batch)
        self.end(item, *self._runner.stopped(item))

    def _close(self, batch: BatchCall) -> None:
        """Let no more jobs join."""
        batch.is_gathering = False
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None
        self.open = {p: other for p, other in self.open.items() if other is not batch}

    # --- claiming enough jobs

    @property
    def room(self) -> int:
        """How many more jobs the open batches take; 0 during a pause."""
        if self._loop.time() < self._no_fill_until:
            return 0
        return sum(_room(batch) for batch in self.open.values())

    def next_fill(self, want: int) -> Fill:
        """Return how to claim up to `want` jobs for the open batches."""
        lanes = dict.fromkeys((lane for _, lane in self.open), 0)
        for (_, lane), batch in self.open.items():
            lanes[lane] += _room(batch)
        asked = [Lane(lane, min(limit, want)) for lane, limit in lanes.items()]
        return Fill(asked, want, sorted({task for task, _ in self.open}))

    def apply_fill(self, want: int, count: int, seconds: float) -> None:
        """Learn how many of the wanted jobs an exchange claimed, and how long it took."""
        if count < want and seconds > SLOW_FILL_SECONDS:
            self._no_fill_until = self._loop.time() + FILL_PAUSES * seconds

    # --- calls

    def _begin(self, batch: BatchCall) -> None:
        if self._slots.lease.is_over:
            _give_back(batch)
            return
        self._close(batch)
        context = self._context.copy()
        task = asyncio.Task(self._call(batch), loop=self._loop, context=context)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        for item in batch.items:
            item.asyncio_task = task
        if self._slots.reports_started:
            for item in batch.items:
                self._slots.report_started(item)

    async def _call(self, batch: BatchCall) -> None:
        """Make the call, and record the end of each of its jobs."""
        ready, ends = self._runner.ends_before_call(batch)
        for item, end in ends:
            self.end(item, *end)
        if not ready:
            return
        first = batch.begin(ready, self._loop.time())
        self._slots.deadlines.watch(first)
        ends = await self._runner.call(ready)
        # Prefetch is measured by the time that a job takes of a slot.
        now = self._loop.time()
        share = (now - first.started) / len(ends)
        for item, end in ends:
            item.slot_taken_at = now - share
            if not item.is_over:  # else timed out, abandoned or fenced
                self.end(item, *end)

    def end(self, item: Attempt, outcome: Outcome, event: JobEvent | None) -> None:
        """Record the end; for a bad payload, first look for other versions of the task."""
        judge = self._versions.defer_bad_payload
        if event is None or not judge(item, outcome, event, self._record_end):
            self._record_end(item, outcome, event)

    def _record_end(
        self, item: Attempt, outcome: Outcome, event: JobEvent | None
    ) -> None:
        if not isinstance(item, BatchItem):
            raise InvariantBroken("only jobs of batches end here")
        batch = item.batch
        batch.unended -= 1
        if batch.unended:
            # The others keep the slot, which `record_end` would count as free.
            self._slots.capacity -= 1
            if self._quotas is not None:
                self._quotas.starts(item.claim)
        self._slots.record_end(item, outcome, event)


def rule_of(handler: Handler) -> Batch:
    if handler.batch is None:
        raise InvariantBroken("the task has batches")
    return handler.batch


def _give_back(batch: BatchCall) -> None:
    for item in list(batch.items):
        item.interrupt(InterruptReason.STOP)


def _room(batch: BatchCall) -> int:
    return rule_of(batch.items[0].handler).size - len(batch.items)
