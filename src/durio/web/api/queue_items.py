"""A queue as the API shows it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from durio.client.limit_store import read_limits
from durio.client.limit_view import choice_text
from durio.client.queue_rows import QueueStop, QueueStops, read_stops
from durio.client.task_by_name import published_tasks
from durio.model.gate_rule import FAIR_LIMIT, QUEUE_LIMIT
from durio.model.job import (
    BLOCKED,
    DEAD,
    READY,
    RUNNING,
    SCHEDULED,
    STATE_BY_CODE,
    State,
    utc_datetime,
)
from durio.model.limit_records import KnownLimit
from durio.model.names import lane, queue_of
from durio.ports.browse import LaneRow, WorkerRow
from durio.web.api.shapes import Answer
from durio.web.call import WebCall
from durio.web.figure import Dated

COUNTED_STATES = (READY, SCHEDULED, BLOCKED, RUNNING, DEAD)


class Count(Answer):
    count: int
    capped: bool = False  # there are more


class StoppedBy(Answer):
    by: str | None  # None: the audit has lost it
    reason: str | None
    at: datetime | None


class QueueItem(Answer):
    name: str
    state: Literal["open", "paused", "closed"]
    closed: bool  # it takes no new jobs; it may also be paused
    paused: StoppedBy | None
    closed_by: StoppedBy | None
    counts: dict[State, Count]
    as_of: datetime | None  # when the jobs were counted
    oldest_ready_seconds: float | None
    depth: int  # jobs that wait; the bound limits them
    bound: int | None
    bound_by: Literal["code", "people"] | None
    overflow: str | None  # what happens to a job above the bound
    over: bool  # above the soft bound of queues without one
    limits: list[str]
    workers: int  # live workers that serve it
    tasks: int  # tasks whose jobs go there


class QueueFacts(NamedTuple):
    """What is read once for all queues of a list."""

    settings: Mapping[str, LaneRow]  # by the name of the queue
    workers: Sequence[WorkerRow]
    tasks: Mapping[str, int]
    limits: Mapping[str, list[str]]

    @property
    def names(self) -> list[str]:
        return sorted({*self.settings, *self.tasks})


async def queue_items(
    call: WebCall, *, after: str = "", limit: int, name: str | None = None
) -> list[QueueItem]:
    """Return the queues that the user may see, by name; with a name only that one."""
    facts = await read_facts(call)
    names = [
        each
        for each in facts.names
        if each > after and call.user.sees(each) and name in {None, each}
    ][:limit]
    app, store = call.app, await call.store()
    numbers = await call.site.figures.queues.read()
    known = [facts.settings[each] for each in names if each in facts.settings]
    stops = await read_stops(store, app.name, known)
    return [queue_item(call, each, facts, numbers, stops) for each in names]


async def read_facts(call: WebCall) -> QueueFacts:
    store, namespace = await call.store(), call.app.name
    rows = await store.queues(namespace)
    published = await published_tasks(store, namespace) or {}
    limits: dict[str, list[str]] = {}
    for known in await read_limits(store, namespace):
        for prefix in (QUEUE_LIMIT, FAIR_LIMIT):
            if known.name.startswith(prefix):
                queue = known.name.removeprefix(prefix)
                limits.setdefault(queue, []).append(limit_text(known))
    return QueueFacts(
        settings={queue_of(row.name): row for row in rows},
        workers=await store.workers(namespace),
        tasks=Counter(t["queue"] for t in published.values() if "task" not in t),
        limits=limits,
    )


def limit_text(limit: KnownLimit) -> str:
    return f"{limit.name}: {choice_text(limit.choice)}"


def queue_item(
    call: WebCall,
    name: str,
    facts: QueueFacts,
    numbers: Dated[Mapping[str, LaneRow]],
    stops: QueueStops,
) -> QueueItem:
    stored = lane(call.app.name, name)
    settings = facts.settings.get(name, LaneRow(stored, paused=False))
    counted = numbers.value.get(stored, LaneRow(stored, paused=False))
    since = counted.oldest_ready_at
    bound_by = "people" if settings.is_manual else "code"
    return QueueItem(
        name=name,
        state="paused" if settings.paused else "closed" if settings.closed else "open",
        closed=settings.closed,
        paused=stopped_by(stops.paused.get(stored)) if settings.paused else None,
        closed_by=stopped_by(stops.closed.get(stored)) if settings.closed else None,
        counts={
            STATE_BY_CODE[state]: Count(count=counted.jobs(state))
            for state in COUNTED_STATES
        },
        as_of=utc_datetime(numbers.at),
        oldest_ready_seconds=None
        if since is None
        else max(0.0, round(call.app.now() - since, 1)),
        depth=counted.jobs(READY, SCHEDULED, BLOCKED),
        bound=settings.maxsize,
        bound_by=None if settings.maxsize is None else bound_by,
        overflow=None if settings.maxsize is None else "refuse",
        over=settings.is_over,
        limits=facts.limits.get(name, []),
        workers=sum(worker.serves(name) for worker in facts.workers),
        tasks=facts.tasks.get(name, 0),
    )


def stopped_by(stop: QueueStop | None) -> StoppedBy:
    if stop is None:
        return StoppedBy(by=None, reason=None, at=None)
    return StoppedBy(by=stop.by, reason=stop.reason, at=utc_datetime(stop.at))
