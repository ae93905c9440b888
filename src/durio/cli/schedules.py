"""`durio schedules`: the list, and the commands that need only a name."""

import shutil
from collections.abc import Sequence
from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, ListSelection, list_options, selection_options
from durio.cli.main import keep_lines
from durio.cli.output import (
    age,
    cell,
    has_colour,
    is_terminal,
    safe,
    show_json,
    show_text,
)
from durio.cli.prompts import BY_OPTION, YES_OPTION, confirm
from durio.cli.schedule_edit import (
    NAME_ARGUMENT,
    add_schedule,
    edit_schedule,
    reset_schedule,
    run_on,
    show_change,
)
from durio.cli.schedule_output import (
    next_text,
    painted_state,
    read_details,
    show_details,
)
from durio.cli.schedule_runs import (
    backfill_schedule,
    preview_schedule,
    run_schedule,
)
from durio.cli.table import Column, table_lines
from durio.client.namespaces import apps_in
from durio.client.schedule_details import (
    DAMAGED,
    run_states,
    tick_fields,
    view_or_damage,
)
from durio.client.schedule_store import read_schedule, store_now
from durio.client.schedule_view import Schedule
from durio.model.errors import InvalidSchedule, ScheduleNotFound
from durio.model.schedule import schedules_kind
from durio.ports.records import Record
from durio.ports.store import Store

PAGE = 500  # schedules in one read
RUNS_SHOWN = 5
COLUMNS = (
    Column("name", least=16),
    Column("state"),
    Column("task", 2, least=16),
    Column("when", 4, least=20),
    Column("next", 1),
    Column("at", 5),
    Column("last tick", 3),
    Column("origin", 6),
)
# The fields of a schedule in a list; `last_tick` and `namespace` are added.
LISTED = (
    *("name", "state", "task", "is_plan", "rule", "cron", "every", "at", "tz"),
    *("next_at", "last_at", "run_count", "skipped_count", "waiting", "origin"),
    *("note", "version"),
)


@click.group("schedules", short_help="List, add, edit, pause, run, backfill schedules.")
@keep_lines
def command() -> None:
    r"""List, add, edit, pause, run, preview, backfill and delete schedules.

    A schedule makes a job at each of its ticks: by cron, at an interval, or once. Any
    running worker handles the schedules of its App; there is no scheduler to start.
    Those that the code declares (`@app.cron`, `@app.every`) are stored when a worker
    starts. Changes reach workers within a second and are recorded: `durio audit ls`.

    \b
    Exit codes:
      0  done
      1  no such schedule, a conflict, or not confirmed; nothing was changed
      2  usage: wrong cron text, times or options, several Apps
      3, 4, 5  store, import of the App, schema
    """


@command.command("ls")
@click.argument("prefix", metavar="[PREFIX]", default="", required=False)
@list_options
@keep_lines
def list_schedules(*, selection: ListSelection, prefix: str) -> None:
    r"""List schedules by name, or those whose names begin with PREFIX.

    Lists schedules of one App: --app, --name, DURIO_APP, DURIO_NAME, or the only App in
    the store. --all-apps lists those of every App. `last tick` says what became of its
    job. `origin` is manual for schedules that people created or changed.

    \b
    States:
      active   makes jobs
      missed   not handled, though due for over 60 s and one interval (at most a day)
      paused   makes no jobs until it is resumed
      ended    has no further tick
      damaged  its record cannot be read

    \b
    Examples:
      durio schedules ls
      durio schedules ls user-42- --json | jq -r '.schedules[].name'

    With --json: {"schedules": [...], "not_stored"}. A schedule has {"name", "namespace",
    "state", "task", "is_plan", "rule", "cron", "every", "at", "tz", "next_at", "last_at",
    "run_count", "skipped_count", "waiting", "origin", "note", "version", "last_tick"};
    "last_tick" is null or {"due_at", "run", "is_plan", "skipped", "state"}. "not_stored"
    names schedules of the code that no worker has stored yet.
    """

    async def ask(app: App, scope: str | None) -> Any:
        store, rows = await app.store(), list[dict[str, Any]]()
        now = await store_now(app)
        for namespace in await apps_in(store) if scope is None else [scope]:
            records = await read_records(store, namespace, prefix)
            rows += await schedule_rows(store, namespace, records, now)
        return rows, now, app

    rows, now, app = selection.run_list(ask)
    stored = {row["name"] for row in rows if row["namespace"] == app.name}
    declared = [name for name in app.schedules.declared if name.startswith(prefix)]
    absent = [name for name in declared if name not in stored]
    if selection.is_json:
        show_json({"schedules": rows, "not_stored": absent})
        return
    whose = "" if selection.all_apps else f" of App {app.name}"
    begins = f" that begin with {prefix}" if prefix else ""
    none = f"no schedules{whose}{begins}"
    show_rows(rows, now, none, with_app=selection.all_apps)
    missed = sum(row["state"] == "missed" for row in rows)
    if missed:
        show_text(
            f"{missed} missed: no worker has handled what is due; see durio doctor"
        )
    if absent:
        names = ", ".join(absent)
        show_text(
            f"not stored yet: {names} (a worker that starts stores what the code declares)"
        )


async def read_records(store: Store, namespace: str, prefix: str) -> list[Record]:
    kind, found = schedules_kind(namespace), list[Record]()
    while True:
        after = found[-1].name if found else ""
        page = await store.list_records(kind, prefix=prefix, after=after, limit=PAGE)
        found += page
        if len(page) < PAGE:
            return found


async def schedule_rows(
    store: Store, namespace: str, records: Sequence[Record], now: float
) -> list[dict[str, Any]]:
    """Return the fields of schedules in a list, with the outcome of the last tick."""
    views = [view_or_damage(record, now) for record in records]
    last = [
        view.ticks[-1] for view in views if isinstance(view, Schedule) and view.ticks
    ]
    states = await run_states(store, namespace, last)
    return [
        {**row_fields(view, states), "name": record.name, "namespace": namespace}
        for record, view in zip(records, views, strict=True)
    ]


def row_fields(
    view: Schedule | InvalidSchedule, states: dict[str, str]
) -> dict[str, Any]:
    if isinstance(view, InvalidSchedule):
        nothing = dict.fromkeys((*LISTED, "last_tick"))
        return {**nothing, "state": DAMAGED, "note": view.what}
    last = tick_fields(view.ticks[-1], states) if view.ticks else None
    return {**{name: getattr(view, name) for name in LISTED}, "last_tick": last}


def show_rows(
    rows: Sequence[dict[str, Any]], now: float, none: str, *, with_app: bool
) -> None:
    """Print a list; schedules that are missed stand out."""
    if not rows:
        click.echo(none)
        return
    texts = [
        [safe(cell(value), is_line=True) for value in cells(row, now)] for row in rows
    ]
    columns = COLUMNS
    if with_app:
        columns = (Column("app", least=10), *COLUMNS)
        texts = [
            [row["namespace"], *text] for row, text in zip(rows, texts, strict=True)
        ]
    width = shutil.get_terminal_size().columns if is_terminal() else None
    for line in table_lines(columns, texts, width, painted_state):
        click.echo(line, color=has_colour())


def cells(row: dict[str, Any], now: float) -> list[Any]:
    return [
        row["name"],
        row["state"],
        row["task"] and row["task"] + (" (plan)" if row["is_plan"] else ""),
        row["rule"] or row["note"],
        next_text(row["state"], row["next_at"], now),
        row["next_at"],
        last_text(row["last_tick"], now),
        row["origin"],
    ]


def last_text(tick: dict[str, Any] | None, now: float) -> str:
    """Return the last tick with its outcome: `9 h ago: done`."""
    if tick is None:
        return "-"
    return f"{age(tick['due_at'], now)} ago: {outcome_text(tick)}"


def outcome_text(tick: dict[str, Any]) -> str:
    if tick["run"] is None:
        return f"skipped ({tick['skipped']})"
    return tick["state"] or "gone"


@command.command("show")
@NAME_ARGUMENT
@selection_options
@keep_lines
def show_schedule(*, selection: AppSelection, schedule: str) -> None:
    r"""Show everything about a schedule.

    Shows its task and rule, who paused it and why, the last 10 ticks with the states of
    their jobs, the next 5 runs with what daylight saving does to them, its backfills,
    and what the code declares if people have changed it.

    \b
    Example:
      durio schedules show nightly

    With --json: the fields of `schedules ls` without "last_tick", and {"fixed_delay",
    "start", "end", "exclude", "overlap", "catchup", "catchup_window", "catchup_max",
    "jitter", "max_runs", "pause_on_failure", "link", "code", "ticks", "next_runs",
    "backfills"}. "link" is the task with its arguments, or the plan; "code" is what the
    code declares, if people have changed it. A run has {"at", "at_other", "note"}.
    """

    async def ask(app: App) -> Any:
        return await read_details(app, await read_schedule(app, schedule), RUNS_SHOWN)

    details = run_on(selection, schedule, ask)
    if selection.is_json:
        show_json(details.to_dict())
    else:
        show_details(details, selection.flags())


# --- pause, resume, rm


@command.command("pause")
@NAME_ARGUMENT
@click.option("--reason", metavar="TEXT", default="", help="Why; `show` prints it.")
@BY_OPTION
@selection_options
@keep_lines
def pause_schedule(
    *, selection: AppSelection, schedule: str, reason: str, by: str | None
) -> None:
    r"""Stop a schedule; jobs that it has made go on.

    Ticks of the pause are not made up for. A schedule that is paused already keeps its
    first reason.

    \b
    Example:
      durio schedules pause nightly --reason 'the disk is full'

    With --json: the fields of the schedule, "namespace" and "changed".
    """

    async def ask(app: App) -> None:
        before = await app.schedules.get(schedule)
        after = await app.schedules.pause(schedule, reason)
        show_change(selection, before, after, app)
        if before.note and not selection.is_json:
            show_text(f"  {before.note}")

    run_on(selection, schedule, ask, by)


@command.command("resume")
@NAME_ARGUMENT
@BY_OPTION
@selection_options
@keep_lines
def resume_schedule(*, selection: AppSelection, schedule: str, by: str | None) -> None:
    r"""Let a paused schedule go on, from its next tick after now.

    \b
    Example:
      durio schedules resume nightly

    With --json: the fields of the schedule, "namespace" and "changed".
    """

    async def ask(app: App) -> None:
        before = await app.schedules.get(schedule)
        show_change(selection, before, await app.schedules.resume(schedule), app)

    run_on(selection, schedule, ask, by)


@command.command("rm")
@NAME_ARGUMENT
@YES_OPTION
@BY_OPTION
@selection_options
@keep_lines
def remove_schedule(
    *, selection: AppSelection, schedule: str, yes: bool, by: str | None
) -> None:
    r"""Delete a schedule; jobs that it has made stay.

    If the code declares it, a worker that starts stores it again: take it out of the
    code first, or pause it.

    \b
    Example:
      durio schedules rm nightly --yes

    With --json: {"name", "namespace", "deleted"}.

    \b
    Exit codes: 1 not confirmed, or no such schedule; 2 no terminal for the question
    """

    async def look(app: App) -> str:
        kind, store = schedules_kind(app.name), await app.store()
        if not await store.records(kind, [schedule]):
            raise ScheduleNotFound(f"there is no schedule {schedule!r}", name=schedule)
        return app.name

    namespace = run_on(selection, schedule, look)
    confirm(f"schedule {schedule} of App {namespace} will be deleted", yes=yes)

    async def delete(app: App) -> None:
        await app.schedules.delete(schedule)
        if selection.is_json:
            show_json({"name": schedule, "namespace": namespace, "deleted": True})
        else:
            show_text(f"{schedule}  deleted")
        if schedule in app.schedules.declared:
            text = (
                f"warning: the code declares {schedule}: a worker that starts stores it"
            )
            click.echo(text, err=True)

    run_on(selection, schedule, delete, by)


for each in (
    add_schedule,
    edit_schedule,
    reset_schedule,
    run_schedule,
    preview_schedule,
    backfill_schedule,
):
    command.add_command(each)
