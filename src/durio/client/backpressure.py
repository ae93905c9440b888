"""Backpressure: callers of a full queue wait for room, first come, first served.

The waiters of one lane and event loop form one queue. The first of them are tried again
after growing pauses, in the same batches as all other calls, so callers of other lanes
never wait for them. A waiter that is cancelled leaves no job behind. When its time is
over, a waiter is tried once more and then gets `QueueFull`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from durio.client.bounds import Bounds
from durio.client.calls import RestartingTask
from durio.client.reliable_write import Answers
from durio.model.errors import DurioError, QueueClosed, QueueFull
from durio.model.job import NewJob
from durio.model.names import queue_of
from durio.model.quantities import counted
from durio.ports.clock import Clock
from durio.ports.enqueue import Full, Locked
from durio.telemetry.emit import Emit

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 0.25
PAUSE_FACTOR = 1.5
CALLERS_MAX = 100  # tried at the same time
# How long a round waits for its tries. A try that finds a lock takes longer.
ROUND_SECONDS = 0.1
REPORT_SECONDS = 60.0  # at most one log line per queue in this time

HINT_SECONDS = 5.0  # used while the queue's speed is unknown
HINT_SECONDS_MIN, HINT_SECONDS_MAX = 1.0, 60.0

# Batcher.try_once, called with the jobs of one call, the lock that its last try found
# (if any), and its deadline.
TryOnce = Callable[[Sequence[NewJob], Locked | None, float], "asyncio.Future[Answers]"]


@dataclass(slots=True)
class QueueWaiter:
    """One caller that waits for room."""

    jobs: Sequence[NewJob]
    future: "asyncio.Future[Answers]"
    deadline: float
    wait_seconds: float
    locked: Locked | None = None  # the lock that its last try found, if any
    current_try: "asyncio.Future[Answers] | None" = None


@dataclass(slots=True)
class DrainRate:
    """How fast a queue is being emptied, as far as this process can see."""

    since: float = 0.0
    depth: int = 0
    entered: int = 0  # jobs that this process has stored since then
    seen_at: float = float("-inf")
    seen_depth: int = 0

    def observe(self, now: float, depth: int) -> None:
        """Note the depth in a reply; after a long pause the measurement starts again."""
        if now - self.seen_at > HINT_SECONDS_MAX:
            self.since, self.depth, self.entered = now, depth, 0
        self.seen_at, self.seen_depth = now, depth

    def hint(self, jobs: int) -> float:
        """Return seconds until there is probably room for this number of jobs."""
        seconds = self.seen_at - self.since
        if seconds <= 0:
            return HINT_SECONDS
        # Other processes enqueue too, so at least this many jobs have left.
        left = self.entered + self.depth - self.seen_depth
        if left <= 0:
            return HINT_SECONDS_MAX
        hint = max(jobs, 1) * seconds / left
        return round(min(max(hint, HINT_SECONDS_MIN), HINT_SECONDS_MAX), 1)


@dataclass(slots=True)
class QueueWaiters:
    """The callers that wait for room in one lane."""

    lane: str
    try_once: TryOnce
    clock: Clock
    emit: Emit
    bounds: Bounds
    full: Full | None = None  # the last refusal
    drain_rate: DrainRate = field(default_factory=DrainRate)
    waiters: deque[QueueWaiter] = field(default_factory=deque[QueueWaiter])
    keys: set[bytes] = field(default_factory=set[bytes])  # keys of the waiters
    reported_at: float = float("-inf")
    has_moved: bool = False  # a job was stored since the last round
    retry_task: RestartingTask = field(init=False)

    def __post_init__(self) -> None:
        self.retry_task = RestartingTask(self.run, self.has_waiters)

    @property
    def is_busy(self) -> bool:
        """Whether there are waiters, so that a new caller has to wait behind them."""
        return self.retry_task.is_running

    def observe(self, full: Full) -> None:
        """Note a refusal."""
        self.full = full
        self.drain_rate.observe(self.clock.monotonic(), full.depth)

    async def wait(self, jobs: Sequence[NewJob], wait_seconds: float) -> Answers:
        """Wait until the jobs are stored, or the time is over."""
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        until = self.clock.monotonic() + wait_seconds
        self.waiters.append(QueueWaiter(jobs, future, until, wait_seconds))
        self.keys.update(keys_of(jobs))
        if not self.is_busy:
            self.report_full()
            self.retry_task.start()
        return await future

    def report_full(self) -> None:
        """Emit that enqueues wait, at most once in REPORT_SECONDS."""
        now = self.clock.monotonic()
        if self.full is not None and now - self.reported_at > REPORT_SECONDS:
            self.reported_at = now
            depth, limit = self.full.depth, self.full.limit
            self.emit("queue.filled", queue=queue_of(self.lane), depth=depth, max=limit)

    async def run(self) -> None:
        """Try the first waiters until there are none left."""
        pause = PAUSE_SECONDS_MIN
        while self.has_waiters():
            await self.pause(pause)
            moved = await self.try_head()
            pause = min(pause * PAUSE_FACTOR, PAUSE_SECONDS_MAX)
            if moved:
                pause = PAUSE_SECONDS_MIN

    def has_waiters(self) -> bool:
        """Drop waiters that have a result or were cancelled; return whether any are left."""
        for waiter in self.waiters:
            if waiter.future.done() and waiter.current_try is not None:
                waiter.current_try.cancel()  # its caller was cancelled
        self.waiters = deque(w for w in self.waiters if not w.future.done())
        self.keys = {key for w in self.waiters for key in keys_of(w.jobs)}
        return bool(self.waiters)

    async def pause(self, pause: float) -> None:
        """Sleep until the next try, but not beyond the deadline of any waiter.

        A waiter with a try in progress gets the result of that try.
        """
        idle = [w.deadline for w in self.waiters if w.current_try is None]
        jittered = pause * (0.75 + self.clock.random() / 2)
        left = min(idle, default=float("inf")) - self.clock.monotonic()
        await self.clock.sleep(max(0.0, min(jittered, left)))

    async def try_head(self) -> bool:
        """Try the first waiters; return whether one of them was stored.

        A waiter with a locked key is tried when its key has its turn on the waiting list.
        The others do not wait for that.
        """
        self.has_waiters()
        asked: list[asyncio.Future[Answers]] = []
        for waiter in islice(first_of_each_key(self.waiters), CALLERS_MAX):
            if waiter.current_try is None:
                future = self.start_try(waiter)
                asked += [future] if waiter.locked is None or future.done() else []
        await asyncio.wait(asked, timeout=ROUND_SECONDS) if asked else None
        for waiter in self.waiters:
            if waiter.current_try is None:
                self.refuse_late(waiter)
        moved, self.has_moved = self.has_moved, False
        return moved

    def start_try(self, waiter: QueueWaiter) -> "asyncio.Future[Answers]":
        future = self.try_once(waiter.jobs, waiter.locked, waiter.deadline)
        waiter.current_try = future
        future.add_done_callback(lambda done: self.end_try(waiter, done))
        return future

    def end_try(self, waiter: QueueWaiter, future: "asyncio.Future[Answers]") -> None:
        waiter.current_try = None
        if not future.cancelled():
            self.has_moved = self.answer(waiter, future) or self.has_moved
            self.refuse_late(waiter)

    def refuse_late(self, waiter: QueueWaiter) -> None:
        """End the wait of a waiter whose time is over."""
        if not waiter.future.done() and self.clock.monotonic() >= waiter.deadline:
            waiter.future.set_exception(self.refusal(waiter))

    def answer(self, waiter: QueueWaiter, future: "asyncio.Future[Answers]") -> bool:
        """Pass the result of a try to its caller; return whether it was stored."""
        error = future.exception()
        if error is not None:
            if not waiter.future.done():
                waiter.future.set_exception(error)
            return False
        answers = future.result()
        full, waiter.locked = answers[0].full, answers[0].locked
        if waiter.locked is not None:
            return False
        if full is None:
            self.drain_rate.entered += len(answers)
            if not waiter.future.done():
                waiter.future.set_result(answers)
            return True
        self.observe(full)
        if full.is_closed and not waiter.future.done():
            waiter.future.set_exception(queue_closed(full))
        return False

    def refusal(self, waiter: QueueWaiter) -> DurioError:
        """Return the error for a waiter whose time is over."""
        if waiter.locked is not None:
            return waiter.locked.error
        before = takewhile(lambda w: w is not waiter, self.waiters)
        ahead = sum(len(w.jobs) for w in before)
        return self.queue_full(ahead + len(waiter.jobs), waiter.wait_seconds)

    def queue_full(self, jobs: int, waited_seconds: float) -> QueueFull:
        """Return the error for a caller; `jobs` includes those of earlier callers."""
        full = self.full or Full(self.lane, 0, 0)
        hint = HINT_SECONDS if full.is_soft else self.drain_rate.hint(jobs)
        return queue_full(full, self.bounds, waited_seconds, hint)


def queue_full(
    full: Full, bounds: Bounds, waited_seconds: float, hint_seconds: float
) -> QueueFull:
    """Return the error of a call for which there was no room."""
    queue = queue_of(full.lane)
    return QueueFull(
        f"queue {queue!r} is full: {counted(full.depth, 'waiting job')}, its bound is "
        f"{full.limit}, set by {bounds.origin_of(full)}; there was no room for "
        f"{waited_seconds:g} s",
        cure=f"Try again in {hint_seconds:g} s. More workers empty the queue sooner; a "
        "larger bound only makes jobs wait longer.",
        queue=queue,
        depth=full.depth,
        limit=full.limit,
        retry_after=hint_seconds,
    )


def keys_of(jobs: Sequence[NewJob]) -> list[bytes]:
    """Return the key of a call as a list, empty if it has none.

    A call of several jobs has no key.
    """
    key = jobs[0].key
    return [] if key is None else [key.key]


def first_of_each_key(waiters: Iterable[QueueWaiter]) -> Iterator[QueueWaiter]:
    """Yield all waiters without a key, and for each key the one that came first."""
    met: set[bytes] = set()
    for waiter in waiters:
        keys = keys_of(waiter.jobs)
        if met.isdisjoint(keys):
            met.update(keys)
            yield waiter


def queue_closed(full: Full) -> QueueClosed:
    """Return the error for a queue that an operator closed, where waiting does not help."""
    queue = queue_of(full.lane)
    return QueueClosed(
        f"queue {queue!r} is closed: it accepts no new jobs",
        cure="An operator closed it. See `durio queues ls`.",
        queue=queue,
    )
