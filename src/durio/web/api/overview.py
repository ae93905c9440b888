"""`admin/overview`: the verdict, what needs attention, and the figures of the whole App."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from fastapi import APIRouter

from durio.client.queue_rows import read_stops
from durio.client.schedule_view import Schedule
from durio.doctor.snapshot import StoreSnapshot
from durio.model.job import BLOCKED, DEAD, READY, RUNNING, SCHEDULED, utc_datetime
from durio.model.names import queue_of
from durio.ports.browse import AuditLine, LaneRow, WorkerRow
from durio.web.api.errors import ErrorItem, group_fields, visible_groups
from durio.web.api.queue_items import Count, QueueItem, queue_item, read_facts
from durio.web.api.shapes import Answer
from durio.web.attention import (
    ATTENTION_MAX,
    Level,
    Notice,
    headline,
    notices,
    visible,
)
from durio.web.call import WebCall
from durio.web.figure import Dated
from durio.web.figures import ENDED_MAX, EndedJobs, Lists
from durio.web.roles import Viewer

router = APIRouter(tags=["overview"])

QUEUES_MAX = 12
NO_LISTS = Lists([], [], [], [])
GROUPS_MAX = 5
CHANGES_MAX = 8
LIVE_STATES = {
    "scheduled": SCHEDULED,
    "blocked": BLOCKED,
    "ready": READY,
    "running": RUNNING,
    "dead": DEAD,
}


class Headline(Answer):
    level: Level
    text: str


class ScreenLink(Answer):
    label: str
    href: str  # below the mount


class AttentionItem(Answer):
    level: Level
    text: str
    evidence: str
    cure: str
    action: ScreenLink | None


class WorkerFigures(Answer):
    live: int
    slots: int
    busy: int


class ChangeLine(Answer):
    at: datetime | None
    by: str
    verb: str
    target: str
    count: int


class NextSchedule(Answer):
    name: str
    task: str
    plain: str  # the rule in words
    state: str
    at: datetime | None


class Overview(Answer):
    headline: Headline
    attention: list[AttentionItem]
    states: dict[str, Count]
    as_of: datetime | None  # when the jobs were counted
    queues: list[QueueItem]  # those with the most waiting jobs
    workers: WorkerFigures
    error_groups: list[ErrorItem]
    last_changes: list[ChangeLine]
    schedules_next: list[NextSchedule]


@router.get("/overview")
async def show_overview(call: Viewer) -> Overview:
    """Return the state of the App; a user who is limited to queues sees only these."""
    figures, limited_to = call.site.figures, call.user.queues
    counted, ended, lists = await asyncio.gather(
        figures.snapshot(), figures.ended(limited_to).read(), figures.lists.read()
    )
    changes: list[AuditLine] = []
    if limited_to is None:
        store = await call.store()
        changes = await store.audit(call.app.name, limit=CHANGES_MAX)
    snapshot = visible(counted.value, limited_to)
    queues = await busiest(call, snapshot, counted.at)
    # Breakers and schedules are not of one queue.
    shown = lists.value
    if limited_to is not None:
        shown = NO_LISTS._replace(groups=await visible_groups(call))
    found = notices(snapshot, shown.findings, shown.breakers)
    level, text = headline(found, snapshot)
    groups = [group for group in shown.groups if group.group.mute is None]
    return Overview(
        headline=Headline(level=level, text=text),
        attention=[attention_item(each) for each in found[:ATTENTION_MAX]],
        states=state_counts(snapshot.lanes, ended.value),
        as_of=utc_datetime(counted.at),
        queues=queues,
        workers=worker_figures(snapshot.workers),
        error_groups=[ErrorItem(**group_fields(each)) for each in groups[:GROUPS_MAX]],
        last_changes=[change_line(each) for each in changes],
        schedules_next=[next_schedule(each) for each in shown.next_schedules],
    )


def attention_item(notice: Notice) -> AttentionItem:
    return AttentionItem(
        level=notice.level,
        text=notice.text,
        evidence=notice.evidence,
        cure=notice.cure,
        action=ScreenLink(label=notice.label, href=notice.href),
    )


def state_counts(lanes: Sequence[LaneRow], ended: EndedJobs) -> dict[str, Count]:
    """Return the jobs by state; those that have ended are counted up to a limit."""
    counts = {
        name: Count(count=sum(each.jobs(state) for each in lanes))
        for name, state in LIVE_STATES.items()
    }
    for name, jobs in (("done", ended.done), ("cancelled", ended.cancelled)):
        counts[name] = Count(count=min(jobs, ENDED_MAX), capped=ended.is_capped(jobs))
    return counts


async def busiest(
    call: WebCall, snapshot: StoreSnapshot, counted_at: float
) -> list[QueueItem]:
    """Return the queues with the most jobs that wait or run."""
    rows = sorted(
        snapshot.lanes,
        key=lambda each: (-each.jobs(SCHEDULED, BLOCKED, READY, RUNNING), each.name),
    )[:QUEUES_MAX]
    if not rows:
        return []
    facts = await read_facts(call)
    lanes = {row.name: row for row in rows}
    numbers = Dated[Mapping[str, LaneRow]](lanes, counted_at)
    stops = await read_stops(await call.store(), call.app.name, rows)
    return [queue_item(call, queue_of(row.name), facts, numbers, stops) for row in rows]


def worker_figures(workers: Sequence[WorkerRow]) -> WorkerFigures:
    live = [row for row in workers if row.lease_seconds_left > 0]
    return WorkerFigures(
        live=len(live),
        slots=sum(int(row.info["concurrency"]) for row in live),
        busy=sum(row.running for row in live),
    )


def change_line(line: AuditLine) -> ChangeLine:
    return ChangeLine(
        at=utc_datetime(line.at),
        by=line.who,
        verb=line.verb,
        target=line.target,
        count=line.jobs,
    )


def next_schedule(schedule: Schedule) -> NextSchedule:
    return NextSchedule(
        name=schedule.name,
        task=schedule.task,
        plain=schedule.rule,
        state=schedule.state,
        at=schedule.next_at,
    )
