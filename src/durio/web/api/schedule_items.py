"""A schedule as the API shows it."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from durio.client.backfills import Backfill
from durio.client.link_places import places_of_link
from durio.client.schedule_details import (
    DAMAGED,
    WHY_SKIPPED,
    differences,
    run_states,
    view_or_damage,
)
from durio.client.schedule_view import HandledTick, Schedule
from durio.client.task_by_name import published_tasks
from durio.model.cron import CronRun
from durio.model.errors import InvalidSchedule
from durio.model.job import utc_datetime
from durio.model.quantities import format_duration
from durio.model.schedule import Pause, ScheduleRecord, load_schedule
from durio.model.schedule_tick import coming_runs
from durio.ports.records import Record
from durio.web.api.shapes import Answer
from durio.web.call import WebCall

NEXT_LISTED, NEXT_SHOWN = 3, 10
BAD_OUTCOMES = frozenset({"dead", "failed"})
BAD_SKIPS = frozenset({"queue_closed", "invalid", "key"})


class NextRun(Answer):
    at: datetime  # in UTC
    local: str  # by the clock of the schedule's zone
    note: str | None  # what daylight saving does to it


class LastTick(Answer):
    due_at: datetime | None
    outcome: str  # state of its job or plan, `skipped`, or `gone`
    job: str | None
    is_plan: bool
    note: str | None  # why it made no job


class SchedulePause(Answer):
    by: str
    reason: str | None
    at: datetime | None


class ScheduleItem(Answer):
    name: str
    state: Literal["active", "paused", "missed", "ended", "damaged"]
    problem: str | None
    task: str | None  # None: the record is damaged
    queue: str | None  # None: several
    is_plan: bool
    plain: str  # when it is due, in words
    cron: str | None
    every: float | None  # seconds
    at: datetime | None
    tz: str | None
    next: list[NextRun]
    next_at: datetime | None
    last_at: datetime | None
    last: list[LastTick]  # newest first
    run_count: int
    skipped_count: int
    waiting: int
    origin: str | None
    paused: SchedulePause | None
    overlap: str | None
    catchup: str | None
    version: int | None


class ScheduleDifference(Answer):
    field: str
    now: str
    code: str


class BackfillItem(Answer):
    id: str
    total: int
    made: int
    failed: int
    concurrency: int
    next_at: datetime | None
    until: datetime | None
    is_over: bool


class ScheduleView(ScheduleItem):
    rule: str
    fixed_delay: bool
    start: datetime | None
    end: datetime | None
    exclude: list[str]
    catchup_window: float
    catchup_max: int
    jitter: float
    max_runs: int | None
    pause_on_failure: bool
    link_json: str | None  # task, arguments and options, or the plan
    masked: bool
    code_says: str | None  # None: it is as in the code, or no code declares it
    code_differences: list[ScheduleDifference]
    backfills: list[BackfillItem]


class KnownSchedule:
    """A stored schedule, read for a list or a page."""

    def __init__(self, record: Record, now: float) -> None:
        self.name = record.name
        self.now = now
        self.view = view_or_damage(record, now)
        self.record: ScheduleRecord | None = None
        if isinstance(self.view, Schedule):
            self.record = load_schedule(record.body, record.name)
        self.places: set[tuple[str, str]] = set()  # tasks and queues

    def whole(self) -> tuple[Schedule, ScheduleRecord]:
        """Return the schedule; raises InvalidSchedule if its record is damaged."""
        if isinstance(self.view, InvalidSchedule):
            raise self.view
        assert self.record is not None  # noqa: S101 - it has the same bytes
        return self.view, self.record

    @property
    def queues(self) -> set[str]:
        return {queue for _, queue in self.places}

    @property
    def link(self) -> dict[str, Any]:
        return {} if self.record is None else self.record.definition.link


async def known_schedules(
    call: WebCall, records: Iterable[Record], now: float
) -> list[KnownSchedule]:
    """Return the schedules that the user may see; only all queues see a damaged one."""
    found = [KnownSchedule(record, now) for record in records]
    published = await published_tasks(await call.store(), call.app.name) or {}
    for each in found:
        each.places = places_of_link(each.link, published) if each.link else set()
    return [each for each in found if may_see(call, each.places)]


def may_see(call: WebCall, places: Collection[tuple[str, str]]) -> bool:
    """Whether the user may see these tasks and queues; none, only if nothing is hidden."""
    if not places:
        return call.sees_all
    return all(
        call.user.sees(queue) and call.identity.sees_task(task)
        for task, queue in places
    )


async def states_of_last(
    call: WebCall, schedules: Iterable[KnownSchedule], ticks: int
) -> Mapping[str, str]:
    """Return the states of the runs of the last ticks, by id."""
    last = [
        tick
        for each in schedules
        if isinstance(each.view, Schedule)
        for tick in each.view.ticks[-ticks:]
    ]
    return await run_states(await call.store(), call.app.name, last)


def schedule_item(
    each: KnownSchedule, states: Mapping[str, str], ticks: int
) -> ScheduleItem:
    return ScheduleItem(**item_fields(each, states, NEXT_LISTED, ticks))


def item_fields(
    each: KnownSchedule, states: Mapping[str, str], runs: int, ticks: int
) -> dict[str, Any]:
    view, stored = each.view, each.record
    if isinstance(view, InvalidSchedule) or stored is None:
        return damaged_fields(each)
    last = [last_tick(tick, states) for tick in view.ticks[-ticks:][::-1]]
    return {
        "name": each.name,
        "state": view.state,
        "problem": problem_of(view, last, each.now),
        "task": view.task,
        "queue": next(iter(each.queues)) if len(each.queues) == 1 else None,
        "is_plan": view.is_plan,
        "plain": view.rule,
        "cron": view.cron,
        "every": view.every,
        "at": view.at,
        "tz": view.tz,
        "next": [next_run(run) for run in coming_runs(stored, each.now, runs)],
        "next_at": view.next_at,
        "last_at": view.last_at,
        "last": last,
        "run_count": view.run_count,
        "skipped_count": view.skipped_count,
        "waiting": view.waiting,
        "origin": view.origin,
        "paused": stored.pause and pause_of(stored.pause),
        "overlap": view.overlap,
        "catchup": view.catchup,
        "version": view.version,
    }


def damaged_fields(each: KnownSchedule) -> dict[str, Any]:
    """Return the fields of a schedule whose record cannot be read."""
    what = each.view.what if isinstance(each.view, InvalidSchedule) else ""
    none = dict.fromkeys(ScheduleItem.model_fields)
    zero = dict.fromkeys(("run_count", "skipped_count", "waiting"), 0)
    lists: dict[str, Any] = {"next": [], "last": []}
    named = {"name": each.name, "state": DAMAGED, "problem": what, "plain": ""}
    return {**none, **zero, **lists, **named, "is_plan": False}


def next_run(run: CronRun) -> NextRun:
    at = utc_datetime(run.at.timestamp())
    assert at is not None  # noqa: S101 - a rule has no tick after the year 9999
    return NextRun(at=at, local=f"{run.at:%a %Y-%m-%d %H:%M:%S %Z}", note=run.note)


def last_tick(tick: HandledTick, states: Mapping[str, str]) -> LastTick:
    if tick.run is None:
        skipped = tick.skipped or ""
        outcome, note = "skipped", WHY_SKIPPED.get(skipped, skipped)
    else:
        outcome, note = states.get(tick.run, tick.outcome) or "gone", None
    return LastTick(
        due_at=tick.due_at,
        outcome=outcome,
        job=tick.run,
        is_plan=tick.is_plan,
        note=note,
    )


def pause_of(pause: Pause) -> SchedulePause:
    return SchedulePause(
        by=pause.by, reason=pause.reason or None, at=utc_datetime(pause.at)
    )


def problem_of(view: Schedule, last: Sequence[LastTick], now: float) -> str | None:
    """Return what is wrong with a schedule, for people."""
    if view.state == "missed":
        since = "" if view.next_at is None else since_text(view.next_at, now)
        return f"due{since}, and no worker has handled it"
    if not last:
        return None
    newest = last[0]
    if newest.outcome in BAD_OUTCOMES:
        return f"its last run is {newest.outcome}"
    skipped = view.ticks[-1].skipped
    if skipped in BAD_SKIPS:
        return f"its last tick made no job: {newest.note}"
    return None


def since_text(at: datetime, now: float) -> str:
    return f" since {format_duration(max(0.0, now - at.timestamp()))}"


# --- one schedule


async def schedule_view(call: WebCall, each: KnownSchedule) -> ScheduleView:
    """Return all about a schedule; raises InvalidSchedule if its record is damaged."""
    view, stored = each.whole()
    states = await states_of_last(call, [each], NEXT_SHOWN)
    changed = code_differences(call, stored) if view.origin == "manual" else []
    return ScheduleView(
        **item_fields(each, states, NEXT_SHOWN, NEXT_SHOWN),
        rule=view.rule,
        fixed_delay=view.fixed_delay,
        start=view.start,
        end=view.end,
        exclude=list(view.exclude),
        catchup_window=view.catchup_window,
        catchup_max=view.catchup_max,
        jitter=view.jitter,
        max_runs=view.max_runs,
        pause_on_failure=view.pause_on_failure,
        link_json=call.payload(view.link),
        masked=not call.user.sees_payloads,
        code_says=code_text(stored, changed),
        code_differences=changed,
        backfills=await backfill_items(call, each.name),
    )


def code_differences(call: WebCall, stored: ScheduleRecord) -> list[ScheduleDifference]:
    """Return what code and people say differently; arguments only to who may see them."""
    if stored.code is None:
        return []
    hidden = json.dumps("masked")
    return [
        ScheduleDifference(
            field=field,
            now=hidden if is_hidden else now,
            code=hidden if is_hidden else code,
        )
        for field, now, code in differences(stored.definition, stored.code)
        for is_hidden in [field == "runs" and not call.user.sees_payloads]
    ]


def code_text(
    stored: ScheduleRecord, changed: Sequence[ScheduleDifference]
) -> str | None:
    if stored.code is None or stored.origin == "code":
        return None
    if not changed:
        return "the code declares the same"
    return "; ".join(f"{each.field}: {each.code}" for each in changed)


async def backfill_items(call: WebCall, name: str) -> list[BackfillItem]:
    return [
        backfill_item(each)
        for each in await call.app.schedules.backfills()
        if each.schedule == name
    ]


def backfill_item(found: Backfill) -> BackfillItem:
    return BackfillItem(
        id=found.id,
        total=found.total,
        made=found.made,
        failed=found.failed,
        concurrency=found.at_a_time,
        next_at=found.first_at,
        until=found.until,
        is_over=found.is_over,
    )
