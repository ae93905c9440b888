"""Schedules of a whole App in virtual time: what ran, what was skipped, and why.

Times are seconds after the start of virtual time, which is a whole hour: 08:00 in UTC on
15 January 2027.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from durio import App, Context
from durio.client.tick_maker import ClientTickMaker
from durio.maintenance.ticker import Ticker
from durio.model.ids import id_text
from durio.model.job import StoredJob
from durio.model.options import row_options
from durio.model.schedule import ScheduleRecord, load_schedule, schedules_kind
from durio.ports.browse import Query
from durio.ports.records import Record
from durio.ports.store import Store
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import EmissionMeaning
from durio.testing.clock import EPOCH

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
JOBS_MAX = 1000


class SeenRun(NamedTuple):
    """An attempt of a task that a schedule runs."""

    due: float | None  # time of its tick; None: it has none
    start: float
    end: float


@dataclass
class Runs:
    """The attempts of a task, and how many went on at the same time."""

    seen: list[SeenRun] = field(default_factory=list)
    going: int = 0
    peak: int = 0

    @property
    def dues(self) -> list[float | None]:
        return [run.due for run in self.seen]

    @property
    def starts(self) -> list[float]:
        return [run.start for run in self.seen]


class Events:
    """The events `schedule.*` of an App."""

    def __init__(self, app: App) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        app.emit.subscribers.append(self)

    def on_event(
        self, name: str, meaning: EmissionMeaning, fields: dict[str, Any]
    ) -> None:
        del meaning
        self.seen.append((name, fields))

    def on_jobs(self, events: Sequence[JobEvent]) -> None:
        del events

    def wants(self, meaning: EmissionMeaning) -> bool:
        return bool(meaning)

    def named(self, name: str) -> list[dict[str, Any]]:
        return [fields for event, fields in self.seen if event == name]

    @property
    def skipped(self) -> Counter[str]:
        """How many ticks were logged as skipped, by reason."""
        found: Counter[str] = Counter()
        for fields in self.named("schedule.skipped"):
            found[fields["reason"]] += fields["count"]
        return found

    @property
    def ticked(self) -> list[float]:
        """Times of ticks that made a job."""
        ticked = self.named("schedule.ticked")
        return [offset(datetime.fromisoformat(one["due_at"])) for one in ticked]


def offset(moment: datetime | None) -> float:
    """Return a time as seconds after the start of virtual time."""
    assert moment is not None
    return moment.timestamp() - EPOCH


def at(seconds: float) -> datetime:
    """Return a time this many seconds after the start of virtual time."""
    return datetime.fromtimestamp(EPOCH + seconds, UTC)


def sleeping_task(app: App, runs: Runs, name: str = "work", **options: Any) -> Any:
    """Declare a task that takes as many seconds as its argument says."""

    @app.task(name=name, **options)
    async def work(ctx: Context, seconds: float = 0.0) -> None:
        runs.going += 1
        runs.peak = max(runs.peak, runs.going)
        start = app.clock.now() - EPOCH
        due = None if ctx.tick is None else offset(ctx.tick.due_at)
        try:
            await app.clock.sleep(seconds)
        finally:
            runs.going -= 1
            runs.seen.append(SeenRun(due, start, app.clock.now() - EPOCH))

    return work


async def until(app: App, seconds: float) -> None:
    """Sleep until this many seconds after the start of virtual time."""
    await app.clock.sleep(EPOCH + seconds - app.clock.now())


async def ticker_of(app: App, store: Any = None) -> Ticker:
    """Return a scheduler without a worker; each `turn` handles what is due."""
    used: Store = store or await app.store()
    return Ticker(used, app.clock, app.emit, app.name, ClientTickMaker(app))


async def turns(ticker: Ticker, seconds: float) -> None:
    """Let a scheduler work for this time."""
    clock = ticker.clock
    end = clock.now() + seconds
    while (pause := await ticker.turn()) + clock.now() <= end:
        await clock.sleep(pause)
    await clock.sleep(max(0.0, end - clock.now()))


async def record_of(app: App, name: str) -> Record:
    store = await app.store()
    (record,) = await store.records(schedules_kind(app.name), [name])
    return record


async def body_of(app: App, name: str) -> ScheduleRecord:
    return load_schedule((await record_of(app, name)).body, name)


class TickJob(NamedTuple):
    """A stored job that a schedule has made."""

    due: float
    id: str
    job: StoredJob
    backfill: str | None = None


async def tick_jobs(app: App, name: str) -> list[TickJob]:
    """Return all jobs of a schedule in the order of their due times."""
    store, found, cursor = await app.store(), list[StoredJob](), None
    while True:
        page = await store.find(Query(), limit=200, cursor=cursor)
        found += page.jobs
        if (cursor := page.cursor) is None:
            break
    made = [(job, row_options(job.opts).tick) for job in found]
    return sorted(
        TickJob(tick.due_at - EPOCH, id_text(job.id), job, tick.backfill)
        for job, tick in made
        if tick is not None and tick.schedule == name
    )


async def tick_times(app: App, name: str) -> list[float]:
    return [job.due for job in await tick_jobs(app, name)]
