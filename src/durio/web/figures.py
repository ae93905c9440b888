"""Figures for all viewers: counted at most once every few seconds, with the time of the count.

No request counts by itself. A figure that is older than its pause is counted again by the
first request that asks; others that ask meanwhile wait for the same count. After a count it
rests 20 times as long as the count took, so counting takes at most a twentieth of the time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from durio.client.breakers import ShownBreaker, list_breakers
from durio.client.error_groups import StoredGroup, list_groups
from durio.client.schedule_view import Schedule, schedule_view
from durio.doctor.examine import run_checks
from durio.doctor.schedules import read_schedules, schedule_checks
from durio.doctor.snapshot import StoreSnapshot, take_snapshot
from durio.model.errors import InvalidSchedule
from durio.model.finding import Finding
from durio.model.job import CANCELLED, DONE
from durio.model.names import lane
from durio.ports.browse import Query
from durio.ports.clock import Clock
from durio.ports.store import Store

if TYPE_CHECKING:
    from durio.app.app import App

T = TypeVar("T")

PAUSE_SECONDS = 2.0  # between two counts, at least
REST_FACTOR = 20
WAIT_SECONDS = 1.0  # for a new count, if there is an older one
ENDED_MAX = 10_000  # done or cancelled jobs that are counted
HEADS = 1_000  # waiting jobs whose tasks are read
NEXT_SCHEDULES = 5
VIEWS_MAX = 50  # sets of queues that users are limited to
# The checks of schedules that are quick, and about now.
SCHEDULE_CHECKS = ("schedules.records", "schedules.missed", "schedules.unknown_tasks")

Queues = tuple[str, ...] | None  # that a user may see; None: all


class Dated(NamedTuple, Generic[T]):
    """A value, and when its count began."""

    value: T
    at: float


class Figure(Generic[T]):
    """A value that is expensive to read."""

    def __init__(self, clock: Clock, count: Callable[[], Awaitable[T]]) -> None:
        self._clock = clock
        self._count = count
        self._known: Dated[T] | None = None
        self._again_at = 0.0  # by the monotonic clock
        self._counting: asyncio.Task[Dated[T]] | None = None

    async def read(self) -> Dated[T]:
        """Return the value; counted now if its rest is over.

        If that takes long or fails, the value before it is returned.
        """
        known = self._known
        if known is not None and self._clock.monotonic() < self._again_at:
            return known
        if self._counting is None:
            self._counting = asyncio.get_running_loop().create_task(self._counted())
            self._counting.add_done_callback(self._ended)
        counting = self._counting
        await asyncio.wait({counting}, timeout=None if known is None else WAIT_SECONDS)
        if counting.done() and not counting.cancelled():
            error = counting.exception()
            if error is None:
                return counting.result()
            if known is None:
                raise error
        return self._known or known or await asyncio.shield(counting)

    async def _counted(self) -> Dated[T]:
        began, at = self._clock.monotonic(), self._clock.now()
        self._known = Dated(await self._count(), at)
        ended = self._clock.monotonic()
        rest = max(PAUSE_SECONDS, REST_FACTOR * (ended - began))
        self._again_at = ended + rest
        return self._known

    def _ended(self, counting: "asyncio.Task[Dated[T]]") -> None:
        self._counting = None
        if not counting.cancelled():
            counting.exception()  # `read` raises it; without a caller it is dropped


class EndedJobs(NamedTuple):
    """Jobs that have ended, counted up to ENDED_MAX."""

    done: int
    cancelled: int


class Lists(NamedTuple):
    """Small lists for the overview."""

    breakers: list[ShownBreaker]
    groups: list[StoredGroup]  # that of the last error first
    next_schedules: list[Schedule]
    findings: list[Finding]  # about schedules


class Figures:
    """The figures of one App, for one event loop."""

    def __init__(self, app: "App") -> None:
        self.app = app
        self.snapshot = Figure(app.clock, self._snapshot)
        self.lists = Figure(app.clock, self._lists)
        self._ended: dict[Queues, Figure[EndedJobs]] = {}

    def ended(self, queues: Queues) -> Figure[EndedJobs]:
        """Return the figure of ended jobs in these queues."""
        figure = self._ended.get(queues)
        if figure is None:
            if len(self._ended) >= VIEWS_MAX:
                self._ended.pop(next(iter(self._ended)))
            figure = Figure(self.app.clock, lambda: self._count_ended(queues))
            self._ended[queues] = figure
        return figure

    async def _snapshot(self) -> StoreSnapshot:
        app = self.app
        store = await app.store()
        return await take_snapshot(store, app.clock, app.name, None, heads=HEADS)

    async def _count_ended(self, queues: Queues) -> EndedJobs:
        store = await self.app.store()
        return EndedJobs(
            await count_up_to(store, self.app.name, DONE, queues),
            await count_up_to(store, self.app.name, CANCELLED, queues),
        )

    async def _lists(self) -> Lists:
        store, name = await self.app.store(), self.app.name
        snapshot = (await self.snapshot.read()).value
        records, now = await read_schedules(store, name)
        checks = schedule_checks(snapshot, records, now)
        wanted = {name: checks[name] for name in SCHEDULE_CHECKS if name in checks}
        schedules: list[Schedule] = []
        for record in records:
            try:
                schedules.append(schedule_view(record, now))
            except InvalidSchedule:
                continue  # a finding says so
        coming = [each for each in schedules if each.next_at is not None]
        coming.sort(key=lambda each: (each.next_at, each.name))
        return Lists(
            await list_breakers(store, name),
            await list_groups(store, name),
            coming[:NEXT_SCHEDULES],
            await run_checks(wanted),
        )


async def count_up_to(store: Store, namespace: str, state: int, queues: Queues) -> int:
    """Return the number of jobs in a state, at most ENDED_MAX."""
    if queues is None:
        query = Query(namespace=namespace, states=(state,))
        return (await store.count(query, most=ENDED_MAX)).jobs
    jobs = 0
    for queue in queues:
        query = Query(lane=lane(namespace, queue), states=(state,))
        jobs += (await store.count(query, most=ENDED_MAX)).jobs
    return min(jobs, ENDED_MAX)
