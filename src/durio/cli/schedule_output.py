"""Schedules as data for `--json`, and as text for people: rows, details, coming runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import click

from durio.app.app import App
from durio.cli.job_output import value_lines
from durio.cli.output import (
    age,
    cell,
    has_colour,
    show_table,
    show_text,
    to_json,
)
from durio.cli.table import Column
from durio.client.backfills import Backfill
from durio.client.schedule_details import (
    DAMAGED,
    WHY_SKIPPED,
    differences,
    run_states,
    tick_fields,
    why_no_run,
)
from durio.client.schedule_store import StoredSchedule, store_now
from durio.client.schedule_view import Schedule, schedule_view
from durio.model.cron import CronRun
from durio.model.job import utc_datetime
from durio.model.quantities import counted, format_duration
from durio.model.schedule import Definition
from durio.model.schedule_tick import coming_runs

COLOURS = {
    "active": "green",
    "paused": "yellow",
    "missed": "bright_red",
    "ended": "bright_black",
    DAMAGED: "bright_red",
}
TICK_COLUMNS = (Column("due"), Column("state"), Column("run", 1), Column("note", 2))
BACKFILL_COLUMNS = (
    Column("id"),
    Column("made"),
    Column("failed", 1),
    Column("at a time", 2),
    Column("next tick", 1),
)


class ScheduleDetails(NamedTuple):
    """A schedule with all that `durio schedules show` says about it."""

    namespace: str
    schedule: Schedule
    definition: Definition
    code: Definition | None  # what the code declares
    ticks: list[dict[str, Any]]
    runs: list[CronRun]  # the next ones
    backfills: list[Backfill]
    now: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            **self.schedule.to_dict(),
            "namespace": self.namespace,
            "ticks": self.ticks,
            "next_runs": [run_fields(run, "UTC") for run in self.runs],
            "backfills": [backfill.to_dict() for backfill in self.backfills],
        }


# --- states


def painted_state(column: str, value: str, shown: str) -> str:
    if column != "state" or not has_colour():
        return shown
    return click.style(shown, fg=COLOURS.get(value), bold=value == "missed")


def next_text(state: str, next_at: datetime | None, now: float) -> str:
    """Return when the next tick is due: `in 9 h`, or `due 5 min ago`."""
    if state not in {"active", "missed"}:
        return "-"
    if next_at is None:
        return "after this run"
    if next_at.timestamp() <= now:
        return f"due {age(next_at, now)} ago"
    return f"in {age(utc_datetime(now), next_at.timestamp())}"


# --- one schedule


def show_details(details: ScheduleDetails, flags: str) -> None:
    """Print everything about a schedule."""
    schedule, now = details.schedule, details.now
    state = painted_state("state", schedule.state, schedule.state)
    click.echo(f"schedule {schedule.name}  {state}", color=has_colour())
    fields = detail_fields(details)
    show_text("\n".join(value_lines(fields, fields)))
    click.echo("\nlast ticks")
    show_table(TICK_COLUMNS, [tick_cells(tick) for tick in details.ticks], "none yet")
    is_paused = schedule.state == "paused"
    click.echo("\nnext runs" + (", if it is resumed" if is_paused else ""))
    show_runs(details.runs, schedule.tz, "UTC", now, why_no_run(schedule))
    if details.backfills:
        click.echo("\nbackfills of the last 7 days")
        rows = [backfill_cells(backfill) for backfill in details.backfills]
        show_table(BACKFILL_COLUMNS, rows, "none")
    for text in (code_text(details, flags), advice(schedule, flags)):
        if text:
            show_text(f"\n{text}")


def detail_fields(details: ScheduleDetails) -> dict[str, Any]:
    schedule, now = details.schedule, details.now
    link = schedule.link
    late = schedule.catchup
    if late != "none":
        late += f", of the last {format_duration(schedule.catchup_window)}"
    if schedule.catchup == "all":
        late += f", at most {schedule.catchup_max}"
    coming = next_text(schedule.state, schedule.next_at, now)
    made = f"{counted(schedule.run_count, 'run')}, {schedule.skipped_count} skipped"
    return {
        "app": details.namespace,
        "task": None if schedule.is_plan else schedule.task,
        "plan": to_json(link) if schedule.is_plan else None,
        **{name: to_json(link[name]) for name in ("args", "kwargs") if link.get(name)},
        "options": to_json(link["options"]) if link.get("options") else None,
        "when": schedule.rule,
        "cron": schedule.cron,
        "time zone": schedule.tz,
        "start": schedule.start,
        "end": schedule.end,
        "overlap": schedule.overlap,
        "catch-up": late,
        "jitter": format_duration(schedule.jitter) if schedule.jitter else None,
        "max runs": schedule.max_runs,
        "on failure": "pause" if schedule.pause_on_failure else None,
        "origin": schedule.origin,
        "paused": schedule.note and schedule.note.removeprefix("paused "),
        "next": f"{cell(schedule.next_at)}  {coming}" if schedule.next_at else None,
        "made": made + (f", {schedule.waiting} waiting" if schedule.waiting else ""),
        "version": schedule.version,
    }


def tick_cells(tick: dict[str, Any]) -> list[Any]:
    if tick["run"] is None:
        note = WHY_SKIPPED.get(tick["skipped"], tick["skipped"])
        return [tick["due_at"], "skipped", None, note]
    note = "plan" if tick["is_plan"] else ""
    return [tick["due_at"], tick["state"] or "gone", tick["run"], note]


def backfill_cells(backfill: Backfill) -> list[Any]:
    made = f"{backfill.made} of {backfill.total}"
    following = backfill.first_at or "all made"
    return [backfill.id, made, backfill.failed, backfill.at_a_time, following]


def code_text(details: ScheduleDetails, flags: str) -> str:
    """Return what the code says about a schedule that people have changed."""
    if details.schedule.origin == "code":
        return ""
    if details.code is None:
        return "No code declares it."
    name = details.schedule.name
    back = f"Give it back to the code: durio schedules reset {name}{flags}"
    changes = differences(details.definition, details.code)
    if not changes:
        return f"The code declares the same.\n{back}"
    lines = [f"  {field:<15} {old}  (in code: {new})" for field, old, new in changes]
    return "\n".join(["The code declares something else:", *lines, back])


def advice(schedule: Schedule, flags: str) -> str:
    """Return the command with which a person goes on, if there is one."""
    if schedule.state == "paused":
        return f"Let it go on: durio schedules resume {schedule.name}{flags}"
    if schedule.state == "missed":
        return (
            "It is due, and no worker has handled it. Is one running?\n"
            f"See: durio workers ls{flags}"
        )
    return ""


# --- coming runs


def show_runs(
    runs: Sequence[CronRun], tz: str, other: str, now: float, none: str
) -> None:
    """Print runs by the clocks of two zones, with what daylight saving does to them."""
    zones = dict.fromkeys((tz, other))
    has_notes = any(run.note for run in runs)
    columns = [*(Column(zone) for zone in zones), Column("in", 1)]
    rows = [
        [*(zoned_text(run.at, zone) for zone in zones), distance(run.at, now)]
        for run in runs
    ]
    if has_notes:
        columns.append(Column("note", 2, least=20))
        rows = [[*row, run.note or ""] for row, run in zip(rows, runs, strict=True)]
    show_table(columns, rows, none)


def zoned_text(moment: datetime, zone: str) -> str:
    """Return a time by the clock of a zone: `Thu 2026-11-19 09:00:00+01:00`."""
    at = moment.astimezone(ZoneInfo(zone))
    text = f"{at:%a} {at.isoformat(' ', 'seconds')}"
    return text.removesuffix("+00:00") + "Z" if zone == "UTC" else text


def distance(moment: datetime, now: float) -> str:
    return age(utc_datetime(now), moment.timestamp())


def run_fields(run: CronRun, other: str) -> dict[str, Any]:
    """Return a run for `--json`, by both clocks."""
    return {
        "at": run.at.isoformat(),
        "at_other": run.at.astimezone(ZoneInfo(other)).isoformat(),
        "note": run.note,
    }


async def read_details(app: App, stored: StoredSchedule, runs: int) -> ScheduleDetails:
    """Read what belongs to a schedule: the states of its runs, and its backfills."""
    now, store = await store_now(app), await app.store()
    schedule = schedule_view(stored.record, now)
    states = await run_states(store, app.name, schedule.ticks)
    return ScheduleDetails(
        namespace=app.name,
        schedule=schedule,
        definition=stored.schedule.definition,
        code=stored.schedule.code,
        ticks=[tick_fields(tick, states) for tick in schedule.ticks],
        runs=coming_runs(stored.schedule, now, runs),
        backfills=[
            backfill
            for backfill in await app.schedules.backfills()
            if backfill.schedule == schedule.name
        ],
        now=now,
    )
