"""A full queue makes its callers wait: in a line, first come, first served.

One line per lane and event loop. The callers at its head are tried again by the clock,
with growing pauses, together with whatever else the combiner has to send: callers of other
lanes never wait for them. A caller that is cancelled while it stands in line leaves no job
behind. Whoever has waited long enough is tried once more and then told `QueueFull`.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from durio.model.errors import DurioError, QueueClosed, QueueFull
from durio.model.job import NewJob
from durio.model.names import queue_of
from durio.ports.clock import Clock
from durio.ports.enqueue import Enqueued, Full, Locked
from durio.telemetry.emit import Emit

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 0.25
PAUSE_FACTOR = 1.5
CALLERS_MAX = 100  # tried at once
REPORT_SECONDS = 60.0  # at most one log line per queue in so long

HINT_SECONDS = 5.0  # nothing is known about how fast the queue moves
HINT_SECONDS_MIN, HINT_SECONDS_MAX = 1.0, 60.0

Answers = list[Enqueued]


class Submit(Protocol):
    """Sends the jobs of one call; `waits`: also for what somebody has locked."""

    def __call__(
        self, jobs: Sequence[NewJob], *, waits_if_locked: bool = True
    ) -> "asyncio.Future[Answers]":
        """What is answered for them, some time."""
        ...


@dataclass(slots=True)
class QueueWaiter:
    """One caller in line."""

    jobs: Sequence[NewJob]
    future: "asyncio.Future[Answers]"
    deadline: float
    wait_seconds: float
    locked: Locked | None = None  # what it was told at its last try


@dataclass(slots=True)
class DrainRate:
    """How fast a queue has been emptied, as far as this process can see."""

    since: float = 0.0
    depth: int = 0
    entered: int = 0  # jobs of ours since then
    seen_at: float = float("-inf")
    seen_depth: int = 0

    def observe(self, now: float, depth: int) -> None:
        """The depth as an answer told it; a look after a long pause begins anew."""
        if now - self.seen_at > HINT_SECONDS_MAX:
            self.since, self.depth, self.entered = now, depth, 0
        self.seen_at, self.seen_depth = now, depth

    def hint(self, jobs: int) -> float:
        """The seconds after which room for so many more jobs may be expected."""
        seconds = self.seen_at - self.since
        if seconds <= 0:
            return HINT_SECONDS
        # Others may have entered too: more have left than we can see.
        left = self.entered + self.depth - self.seen_depth
        if left <= 0:
            return HINT_SECONDS_MAX
        hint = max(jobs, 1) * seconds / left
        return round(min(max(hint, HINT_SECONDS_MIN), HINT_SECONDS_MAX), 1)


@dataclass(slots=True)
class QueueWaiters:
    """The callers that wait for room in one lane."""

    lane: str
    submit: Submit
    clock: Clock
    emit: Emit
    full: Full | None = None  # the last answer
    drain_rate: DrainRate = field(default_factory=DrainRate)
    waiters: deque[QueueWaiter] = field(default_factory=deque[QueueWaiter])
    keys: set[bytes] = field(default_factory=set[bytes])  # of those who stand here
    retry_task: "asyncio.Task[None] | None" = None
    reported_at: float = float("-inf")

    @property
    def is_busy(self) -> bool:
        """Whether anybody stands here: whoever comes goes to the end."""
        return self.retry_task is not None

    def observe(self, full: Full) -> None:
        """What a refusal told."""
        self.full = full
        self.drain_rate.observe(self.clock.monotonic(), full.depth)

    async def wait(self, jobs: Sequence[NewJob], wait_seconds: float) -> Answers:
        """Stand in line until the jobs are stored, or the time is over."""
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        until = self.clock.monotonic() + wait_seconds
        self.waiters.append(QueueWaiter(jobs, future, until, wait_seconds))
        self.keys.update(keys_of(jobs))
        if self.retry_task is None:
            self.report_full()
            self.start()
        return await future

    def start(self) -> None:
        """Somebody stands here."""
        self.retry_task = asyncio.get_running_loop().create_task(self.run())
        self.retry_task.add_done_callback(self.restart_if_cancelled)

    def report_full(self) -> None:
        """Say that enqueues wait, now and then."""
        now = self.clock.monotonic()
        if self.full is not None and now - self.reported_at > REPORT_SECONDS:
            self.reported_at = now
            depth, limit = self.full.depth, self.full.limit
            self.emit("queue.filled", queue=queue_of(self.lane), depth=depth, max=limit)

    async def run(self) -> None:
        """Try the head of the line until nobody stands here."""
        pause = PAUSE_SECONDS_MIN
        while self.has_waiters():
            await self.pause(pause)
            moved = await self.try_head()
            pause = min(pause * PAUSE_FACTOR, PAUSE_SECONDS_MAX)
            if moved:
                pause = PAUSE_SECONDS_MIN
        self.retry_task = None

    def restart_if_cancelled(self, task: "asyncio.Task[None]") -> None:
        """Somebody has cancelled all tasks of this loop, perhaps before ours began."""
        if self.retry_task is task:
            self.retry_task = None
            if self.has_waiters():
                self.start()

    def has_waiters(self) -> bool:
        """Whether anybody still waits; those who were answered or cancelled go."""
        self.waiters = deque(w for w in self.waiters if not w.future.done())
        self.keys = {key for w in self.waiters for key in keys_of(w.jobs)}
        return bool(self.waiters)

    async def pause(self, pause: float) -> None:
        """Until the next try, but not beyond the end of anybody's time."""
        left = min(w.deadline for w in self.waiters) - self.clock.monotonic()
        jittered = pause * (0.75 + self.clock.random() / 2)
        await self.clock.sleep(max(0.0, min(jittered, left)))

    async def try_head(self) -> bool:
        """Ask for the first in line; True: somebody got in."""
        self.has_waiters()
        head = list(islice(first_of_each_key(self.waiters), CALLERS_MAX))
        asked = [self.submit(waiter.jobs, waits_if_locked=False) for waiter in head]
        await asyncio.wait(asked) if asked else None
        moved = False
        for waiter, future in zip(head, asked, strict=True):
            moved = self.answer(waiter, future) or moved
        now = self.clock.monotonic()
        for place, waiter in enumerate(self.waiters):
            if not waiter.future.done() and now >= waiter.deadline:
                waiter.future.set_exception(self.refusal(waiter, place))
        return moved

    def answer(self, waiter: QueueWaiter, future: "asyncio.Future[Answers]") -> bool:
        """Tell a caller what came of its try, if anything did."""
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

    def refusal(self, waiter: QueueWaiter, place: int) -> DurioError:
        """The time is over."""
        if waiter.locked is not None:
            return waiter.locked.error
        ahead = sum(len(w.jobs) for w in islice(self.waiters, place))
        return self.queue_full(ahead + len(waiter.jobs), waiter.wait_seconds)

    def queue_full(self, jobs: int, waited_seconds: float) -> QueueFull:
        """What a caller is told that found no room for so many jobs."""
        full = self.full or Full(self.lane, 0, 0)
        queue = queue_of(self.lane)
        hint = HINT_SECONDS if full.is_soft else self.drain_rate.hint(jobs)
        bound = "the soft bound" if full.is_soft else "its bound"
        return QueueFull(
            f"queue {queue!r} is full: {full.depth} jobs wait, {bound} is {full.limit}, "
            f"and there was no room for {waited_seconds:g} s",
            cure=f"Try again in {hint:g} s. More workers empty it sooner; a larger "
            "maxsize only makes jobs wait longer.",
            queue=queue,
            depth=full.depth,
            limit=full.limit,
            retry_after=hint,
        )


def keys_of(jobs: Sequence[NewJob]) -> list[bytes]:
    """The key of a call, if it has one: several jobs at once have none."""
    key = jobs[0].key
    return [] if key is None else [key.key]


def first_of_each_key(waiters: Iterable[QueueWaiter]) -> Iterator[QueueWaiter]:
    """All of them, but of those with one key only the one that came first."""
    met: set[bytes] = set()
    for waiter in waiters:
        keys = keys_of(waiter.jobs)
        if met.isdisjoint(keys):
            met.update(keys)
            yield waiter


def queue_closed(full: Full) -> QueueClosed:
    """Somebody closed the queue: waiting would not help."""
    queue = queue_of(full.lane)
    return QueueClosed(
        f"queue {queue!r} is closed: it takes no new jobs",
        cure="Somebody closed it by hand; see: durio queues ls.",
        queue=queue,
    )
