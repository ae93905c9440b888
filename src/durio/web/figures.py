"""Figures for all viewers: jobs by queue and state, what needs attention, small lists.

No request counts by itself (`web/figure.py`). Jobs are counted in one place: the overview,
the list of queues and the stream show the same numbers, with the time of their count.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from durio.client.breakers import ShownBreaker, list_breakers
from durio.client.error_groups import StoredGroup, list_groups
from durio.client.job_search import count_jobs, plain_search
from durio.client.schedule_view import Schedule, schedule_view
from durio.doctor.examine import run_checks
from durio.doctor.schedules import read_schedules, schedule_checks
from durio.doctor.snapshot import StoreSnapshot, take_snapshot
from durio.model.errors import InvalidSchedule
from durio.model.finding import Finding
from durio.model.job import CANCELLED, DONE
from durio.model.names import lane
from durio.ports.browse import LaneRow, Query
from durio.web.figure import Dated, Figure

if TYPE_CHECKING:
    from durio.app.app import App

PAUSE_SECONDS = 2.0  # between two reads of what only the overview shows
BRIEF_SECONDS = 0.02  # jobs that are counted so quickly are counted for each request
ENDED_MAX = 10_000  # done or cancelled jobs that are counted
ENDED_REST = 100  # the jobs are read for it, which takes this process some 0.1 s
HEADS = 1_000  # waiting jobs whose tasks are read
NEXT_SCHEDULES = 5
VIEWS_MAX = 50  # sets of queues that users are limited to
# The checks of schedules that are quick, and about now.
SCHEDULE_CHECKS = ("schedules.records", "schedules.missed", "schedules.unknown_tasks")

Queues = tuple[str, ...] | None  # that a user may see; None: all


class EndedJobs(NamedTuple):
    """Jobs that have ended; if there are more than ENDED_MAX, the number is larger."""

    done: int
    cancelled: int
    is_partial: bool  # of those before the last 100,000 jobs none were counted

    def is_capped(self, jobs: int) -> bool:
        """Whether there may be more than these."""
        return self.is_partial or jobs > ENDED_MAX


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
        self.queues = Figure(
            app.clock, self._lanes, pause_seconds=0.0, brief_seconds=BRIEF_SECONDS
        )
        self._snapshots = Figure(
            app.clock, self._take_snapshot, pause_seconds=PAUSE_SECONDS
        )
        self.lists = Figure(app.clock, self._lists, pause_seconds=PAUSE_SECONDS)
        self._ended: dict[Queues, Figure[EndedJobs]] = {}

    def ended(self, queues: Queues) -> Figure[EndedJobs]:
        """Return the figure of ended jobs in these queues."""
        figure = self._ended.get(queues)
        if figure is None:
            if len(self._ended) >= VIEWS_MAX:
                self._ended.pop(next(iter(self._ended)))
            figure = Figure(
                self.app.clock,
                lambda: self._count_ended(queues),
                pause_seconds=PAUSE_SECONDS,
                rest_factor=ENDED_REST,
            )
            self._ended[queues] = figure
        return figure

    async def _lanes(self) -> Mapping[str, LaneRow]:
        """Read an index entry for each waiting and dead job."""
        store = await self.app.store()
        rows = await store.queues(self.app.name, counts=True, oldest=True)
        return {row.name: row for row in rows}

    async def snapshot(self) -> Dated[StoreSnapshot]:
        """Return a snapshot of the store, and when its jobs were counted."""
        return (await self._snapshots.read()).value

    async def _take_snapshot(self) -> Dated[StoreSnapshot]:
        app = self.app
        store, counted = await app.store(), await self.queues.read()
        snapshot = await take_snapshot(
            store, app.clock, app.name, None, heads=HEADS, counted=counted.value
        )
        return Dated(snapshot, counted.at)

    async def _count_ended(self, queues: Queues) -> EndedJobs:
        """Look through the newest jobs: stores have no index of those that are done."""
        store, name = await self.app.store(), self.app.name
        lanes = [None] if queues is None else [lane(name, queue) for queue in queues]
        jobs, is_partial = Counter[int](), False
        for each in lanes:
            query = Query(name, (DONE, CANCELLED), each)
            found = await count_jobs(
                store, self.app.clock, plain_search(query), most=ENDED_MAX
            )
            jobs.update(found.by_state)
            is_partial |= found.is_partial
        return EndedJobs(jobs[DONE], jobs[CANCELLED], is_partial)

    async def _lists(self) -> Lists:
        store, name = await self.app.store(), self.app.name
        snapshot = (await self.snapshot()).value
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
