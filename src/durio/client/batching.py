"""Enqueues that come together go together, and none of them waits for another's trouble.

**Together.** While one store call is in flight, others queue up and go as one. Nobody waits
for company: an idle combiner sends at once. Each caller gets its own answer or its own
exception.

**In order.** Calls with the same key are stored in the order in which they were made:
while some are on their way, those that come later stand behind them.

**Apart.** Whether a key is free may hang on a transaction that somebody has open, perhaps
the very one who enqueues next. A store does not wait for that: it says that something is
locked. Calls that were refused so go again in smaller and smaller batches, beside all
others, until it is known who needs what is locked. Those ask again now and then, each for
as long as the store says; whoever needs the same stands behind them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from durio.client.backpressure import Answers
from durio.client.reliable_write import (
    ReliableWriter,
    closed_before_stored,
    unknown_outcome,
)
from durio.model.job import READY, NewJob
from durio.ports.clock import Clock
from durio.ports.enqueue import Enqueued, Locked

BATCH_MAX = 1000  # jobs
BATCH_BYTES = 4 << 20  # of arguments
SPLIT_FACTOR = 4  # what a batch is cut into when something in it is locked
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 0.5
PAUSES_MAX = 10
PAUSE_SECONDS_EACH, PAUSE_SECONDS_CROWD = 0.05, 2.0  # the more of them rest, the longer

WaitKey = bytes | str  # what a call may have to wait for: its key, or else its lane


@dataclass(eq=False, slots=True)
class EnqueueCall:
    """Jobs of one caller, until they are answered for."""

    jobs: Sequence[NewJob]
    future: "asyncio.Future[Answers]"
    wait_key: WaitKey
    since: float
    waits_if_locked: (
        bool  # False: the caller would rather hear that something is locked
    )
    batch_max: int = BATCH_MAX  # the most in a batch that it may go with
    pauses: int = 0
    is_sent: bool = False
    is_first: bool = False  # others stand behind it
    deadline: float | None = None  # since it was locked
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class KeyGroup:
    """Calls with one place: how many are on their way, and who stands behind them."""

    first: int = 0
    behind: list[EnqueueCall] = field(default_factory=list[EnqueueCall])
    locked: Locked | None = None  # what the first ones were told last


class Batcher:
    """Sends the calls of one event loop, as many at once as are waiting."""

    def __init__(self, writer: ReliableWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._sender = BatchSender(self._send, self._end)
        self._split_sender = BatchSender(self._send, self._end)
        self._locked_sender = BatchSender(self._send, self._end)
        self._groups: dict[WaitKey, KeyGroup] = {}
        self._pausing: set[asyncio.Task[None]] = set()

    def submit(
        self, jobs: Sequence[NewJob], *, waits_if_locked: bool = True
    ) -> "asyncio.Future[Answers]":
        """Send these jobs as soon as may be, whole."""
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        key = jobs[0].key  # several jobs at once have none
        place = jobs[0].lane if key is None else key.key
        call = EnqueueCall(
            jobs, future, place, self._clock.monotonic(), waits_if_locked
        )
        group = self._groups.get(place)
        if group is not None:
            self._queue_behind(call, group)
            return future
        if key is not None:
            self._put_first(call)
        self._sender.put((call,))
        return future

    # --- together

    async def _send(self, batch: Sequence[EnqueueCall]) -> None:
        """Send and answer; what fails is told to the callers, and to nobody else."""
        jobs = [job for call in batch for job in call.jobs]
        try:
            answers = await self._writer.write(jobs, [len(c.jobs) for c in batch])
        except Exception as error:
            for call in batch:
                self._fail(call, error)
            return
        start = 0
        answered: list[tuple[EnqueueCall, Answers]] = []
        for call in batch:
            answered.append((call, answers[start : start + len(call.jobs)]))
            start += len(call.jobs)
        self._answer_batch(answered, places=len({call.wait_key for call in batch}))

    def _answer_batch(
        self, answered: Sequence[tuple[EnqueueCall, Answers]], places: int
    ) -> None:
        """Answer those who have one; the others were refused, in a batch of so many."""
        refused: list[EnqueueCall] = []
        reason: Locked | None = None
        for call, answers in answered:
            locked = answers[0].locked
            if locked is None or (places == 1 and not call.waits_if_locked):
                self._answer(call, answers)
            elif self._is_in_time(call, locked):
                refused.append(call)
                reason = locked
            else:
                self._end(call)
        if refused and places == 1:
            self._pause_calls(refused, reason)
        elif refused:
            for call in refused:
                call.batch_max = max(1, places // SPLIT_FACTOR)
            self._split_sender.put(refused)

    def _answer(self, call: EnqueueCall, answers: Answers) -> None:
        if not call.future.done():
            call.future.set_result(answers)
        self._end(call)

    def _fail(self, call: EnqueueCall, error: Exception) -> None:
        if not call.future.done():
            call.future.set_exception(error)
        self._end(call)

    def _end(self, call: EnqueueCall) -> None:
        """It has its answer, or its caller has gone, or it was cut off on its way."""
        if call.timer is not None:
            call.timer.cancel()
        if not call.future.done():
            call.future.set_exception(closed_before_stored())
        elif call.future.cancelled():
            self._writer.forget(call.jobs)
        if call.is_first:
            self._release_group(call)

    # --- in order

    def _put_first(self, call: EnqueueCall) -> None:
        if not call.is_first:
            call.is_first = True
            self._groups.setdefault(call.wait_key, KeyGroup()).first += 1

    def _queue_behind(self, call: EnqueueCall, group: KeyGroup) -> None:
        if group.locked is not None and not call.waits_if_locked:
            self._answer(call, refusals(call.jobs, group.locked))
        else:
            group.behind.append(call)

    def _release_group(self, call: EnqueueCall) -> None:
        """When all are over that went first, those behind go, together."""
        call.is_first = False
        group = self._groups[call.wait_key]
        group.first -= 1
        if group.first:
            return
        del self._groups[call.wait_key]
        if isinstance(call.wait_key, bytes):
            for each in group.behind:
                self._put_first(each)
        self._sender.put(group.behind)

    # --- apart

    def _is_in_time(self, call: EnqueueCall, locked: Locked) -> bool:
        """Whether it may be asked for again; if not, its caller is told."""
        call.is_sent = False
        call.deadline = call.since + locked.patience_seconds
        left = call.deadline - self._clock.monotonic()
        if left <= 0:
            self._expire(call, locked)
        elif call.timer is None:
            loop = asyncio.get_running_loop()
            call.timer = loop.call_later(left, self._expire, call, locked)
        return not call.future.done()

    def _expire(self, call: EnqueueCall, locked: Locked) -> None:
        if call.is_sent or call.future.done():
            return  # on its way once more: what it is told then counts
        is_vague = self._writer.is_maybe_stored(call.jobs)
        error = unknown_outcome(locked.error) if is_vague else locked.error
        self._fail(call, error)

    def _pause_calls(self, calls: Sequence[EnqueueCall], locked: Locked | None) -> None:
        """What these need is locked, for sure; whoever needs it too stands behind them."""
        for call in calls:
            call.batch_max = 1
            call.pauses = min(call.pauses + 1, PAUSES_MAX)
            self._put_first(call)
        group = self._groups[calls[0].wait_key]
        group.locked = locked
        behind, group.behind = group.behind, []
        for call in behind:
            self._queue_behind(call, group)
        task = asyncio.get_running_loop().create_task(self._pause(calls))
        self._pausing.add(task)
        task.add_done_callback(lambda task: self._resume(task, calls))

    async def _pause(self, calls: Sequence[EnqueueCall]) -> None:
        """The longer, the more rest; but the last try comes just before its time is over."""
        crowd = PAUSE_SECONDS_EACH * len(self._pausing)
        longest = min(max(PAUSE_SECONDS_MAX, crowd), PAUSE_SECONDS_CROWD)
        pause = min(PAUSE_SECONDS_MIN * 2 ** calls[0].pauses, longest)
        pause *= 0.5 + self._clock.random()
        left = min(call.deadline or 0.0 for call in calls) - self._clock.monotonic()
        await self._clock.sleep(max(min(pause, left - PAUSE_SECONDS_MIN), 0.0))

    def _resume(self, task: "asyncio.Task[None]", calls: Sequence[EnqueueCall]) -> None:
        """Also when somebody has cancelled that: their callers may still wait."""
        self._pausing.discard(task)
        self._locked_sender.put(calls)


def refusals(jobs: Sequence[NewJob], locked: Locked) -> Answers:
    """What a store would say of these jobs."""
    return [Enqueued(job.id, False, READY, locked=locked) for job in jobs]


class BatchSender:
    """Sends batch after batch, while there are calls."""

    def __init__(
        self,
        send: Callable[[Sequence[EnqueueCall]], Awaitable[None]],
        end: Callable[[EnqueueCall], None],
    ) -> None:
        self._send = send
        self._end = end
        self._calls: deque[EnqueueCall] = deque()
        self._batch: list[EnqueueCall] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, calls: Iterable[EnqueueCall]) -> None:
        """To the end of the line."""
        self._calls.extend(calls)
        if self._task is None and self._calls:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._restart_if_cancelled)

    async def _run(self) -> None:
        while batch := self._next_batch():
            self._batch = batch
            await self._send(batch)
            self._batch = []
        self._task = None

    def _restart_if_cancelled(self, task: "asyncio.Task[None]") -> None:
        """Somebody has cancelled all tasks of this loop, perhaps before ours began."""
        if self._task is not task:
            return
        self._task = None
        batch, self._batch = self._batch, []
        left, self._calls = self._calls, deque[EnqueueCall]()
        for call in batch:
            self._end(call)
        for call in left:
            if call.future.done():
                self._end(call)
            else:
                self.put((call,))

    def _next_batch(self) -> list[EnqueueCall]:
        """Those that fit one store call; whoever has gone is left out."""
        batch: list[EnqueueCall] = []
        jobs = size = places = 0
        most = BATCH_MAX
        while self._calls:
            call = self._calls[0]
            if call.future.done():
                self._end(self._calls.popleft())
                continue
            jobs += len(call.jobs)
            size += sum(len(job.payload) for job in call.jobs)
            most = min(most, call.batch_max)
            if not batch or batch[-1].wait_key != call.wait_key:
                places += 1
            if batch and (jobs > BATCH_MAX or size > BATCH_BYTES or places > most):
                break
            call.is_sent = True
            batch.append(self._calls.popleft())
        return batch
