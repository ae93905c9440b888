"""Schedules as values: what `app.schedules` returns."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec

from durio.model.job import utc_datetime
from durio.model.quantities import format_duration
from durio.model.schedule import Definition, ScheduleRecord, load_schedule
from durio.ports.records import Record

LINK_CHARS_MAX = 300  # of task and arguments, in an error


@dataclass(frozen=True, slots=True)
class HandledTick:
    """A tick of a schedule that was handled."""

    __module__ = "durio.schedules"

    due_at: datetime | None  # when it was due, in UTC
    run: str | None = None  # id of its job or plan; None: it made none
    is_plan: bool = False  # whether `run` is a plan
    skipped: str | None = None  # why it made no job: `overlap`, `catchup`, ...
    # How the run ended: `done`, `dead`, `cancelled`, of a plan also `failed`, or `gone`
    # if it was deleted before that was noted. It is noted with the next tick.
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, from one read of the store."""

    __module__ = "durio.schedules"

    name: str  # unique in the App
    # `active`, `paused`, `missed` (due for long, and no scheduler has handled it) or
    # `ended` (it has no further tick).
    state: Literal["active", "paused", "missed", "ended"]
    task: str  # full name of the task; of a plan, its first task
    is_plan: bool  # whether it runs a plan
    rule: str  # when it is due, in words
    cron: str | None  # cron text
    every: float | None  # interval in seconds
    at: datetime | None  # the time of a schedule that runs once
    tz: str  # time zone of cron and excluded dates
    fixed_delay: bool  # whether the interval counts from the end of the run before
    start: datetime | None  # no tick is before this time
    end: datetime | None  # no tick is after this time
    exclude: tuple[str, ...]  # dates without ticks
    overlap: str  # what a tick does while the run before it goes on
    catchup: str  # which late ticks run after downtime
    catchup_window: float  # seconds; older ticks do not run
    catchup_max: int  # most late ticks that run
    jitter: float  # seconds; longest random delay of a job
    max_runs: int | None  # the schedule ends after so many runs
    pause_on_failure: bool  # whether a failed run pauses it
    origin: Literal["code", "manual"]  # `manual`: created or changed by people
    next_at: datetime | None  # when the next tick is due, in UTC
    last_at: datetime | None  # when the last tick that made a job was due
    run_count: int  # ticks that made a job
    skipped_count: int  # ticks that made no job
    waiting: int  # ticks that wait until the run before them ends
    note: str | None  # who paused it, when and why
    version: int  # changes with each change, but not with ticks: `change(version=...)`
    link: dict[str, Any] = field(default_factory=dict[str, Any])  # task and arguments
    # What the code declares, if people have changed the schedule.
    code: dict[str, Any] | None = None
    ticks: tuple[HandledTick, ...] = ()  # the last ten, oldest first

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for `json.dumps`: times as ISO 8601."""
        return msgspec.json.decode(msgspec.json.encode(self))


def schedule_view(record: Record, now: float) -> Schedule:
    """Return a stored schedule as a value; raises InvalidSchedule if it is damaged."""
    stored = load_schedule(record.body, record.name)
    definition, rule = stored.definition, stored.definition.rule
    link = definition.link
    return Schedule(
        name=record.name,
        state=state_of(stored, record.due_at, now),
        task=first_task(link),
        is_plan="task" not in link,
        rule=rule.describe(),
        cron=rule.cron,
        every=rule.every,
        at=utc_datetime(rule.at),
        tz=rule.tz,
        fixed_delay=rule.fixed_delay,
        start=utc_datetime(rule.start),
        end=utc_datetime(rule.end),
        exclude=rule.exclude,
        overlap=definition.overlap,
        catchup=definition.catchup,
        catchup_window=definition.catchup_window,
        catchup_max=definition.catchup_max,
        jitter=definition.jitter,
        max_runs=definition.max_runs,
        pause_on_failure=definition.pause_on_failure,
        origin=stored.origin,
        next_at=None if stored.pause else utc_datetime(stored.next_at),
        last_at=utc_datetime(stored.last_at),
        run_count=stored.run_count,
        skipped_count=stored.skipped_count,
        waiting=len(stored.waiting),
        note=note_of(stored),
        version=stored.version,
        link=link,
        code=code_of(stored),
        ticks=tuple(
            HandledTick(
                utc_datetime(note.due_at),
                note.run and note.run.id,
                note.run is not None and note.run.is_plan,
                note.skipped,
                note.outcome,
            )
            for note in stored.ticks
        ),
    )


def state_of(
    stored: ScheduleRecord, due_at: float | None, now: float
) -> Literal["active", "paused", "missed", "ended"]:
    if stored.pause is not None:
        return "paused"
    if stored.is_over:
        return "ended"
    rule = stored.definition.rule
    if due_at is not None and now - due_at > rule.missed_seconds(due_at):
        return "missed"
    return "active"


def note_of(stored: ScheduleRecord) -> str | None:
    pause = stored.pause
    if pause is None:
        return None
    at = utc_datetime(pause.at)
    when = "" if at is None else f" at {at.isoformat(' ', 'seconds')}"
    why = f": {pause.reason}" if pause.reason else ""
    return f"paused by {pause.by}{when}{why}"


def in_words(stored: ScheduleRecord) -> str:
    """Return what a schedule runs, its rule, and the choices that are not the default."""
    definition, rule = stored.definition, stored.definition.rule
    default = Definition(link={}, rule=rule)
    choices = {
        "tz": None if rule.tz == "UTC" else rule.tz,
        "start": utc_datetime(rule.start),
        "end": utc_datetime(rule.end),
        "catch-up window": format_duration(definition.catchup_window)
        if definition.catchup_window != default.catchup_window
        else None,
        "catch-up max": definition.catchup_max
        if definition.catchup_max != default.catchup_max
        else None,
        "jitter": format_duration(definition.jitter) if definition.jitter else None,
        "max runs": definition.max_runs,
        "on failure": "pause" if definition.pause_on_failure else None,
    }
    link = msgspec.json.encode(definition.link).decode()
    if len(link) > LINK_CHARS_MAX:
        link = f"{link[:LINK_CHARS_MAX]}..."
    parts = [
        rule.describe(),
        f"runs {link}",
        f"overlap {definition.overlap}",
        f"catch-up {definition.catchup}",
        *(f"{name} {value}" for name, value in choices.items() if value is not None),
        note_of(stored) or "not paused",
    ]
    return ", ".join(parts)


def code_of(stored: ScheduleRecord) -> dict[str, Any] | None:
    code = stored.code
    if code is None or not stored.is_manual:
        return None
    return msgspec.to_builtins(code)


def first_task(link: dict[str, Any]) -> str:
    """Return the first task of a stored signature or plan."""
    while "task" not in link:
        members = link.get("chain") or link.get("group") or [{"task": "?"}]
        link = members[0]
    return link["task"]
