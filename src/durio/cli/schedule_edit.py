"""`durio schedules add`, `edit` and `reset`: commands that change what a schedule is."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, selection_options
from durio.cli.enqueue import parse_arguments
from durio.cli.known_names import check_namespace
from durio.cli.main import keep_lines
from durio.cli.output import cell, show_json, show_text
from durio.cli.prompts import BY_OPTION, operator
from durio.cli.schedule_choices import (
    RULES,
    RULES_CURE,
    as_flags,
    choice_options,
    parse_choices,
)
from durio.cli.schedule_link import (
    job_options,
    plan_option,
    read_plan,
    take_options,
)
from durio.cli.schedule_output import next_text
from durio.client.schedule_details import differences
from durio.client.schedule_link import edited_link, task_link
from durio.client.schedule_store import StoredSchedule, read_schedule, store_now
from durio.client.schedule_view import Schedule, first_task, schedule_view
from durio.model.errors import (
    InvalidSchedule,
    ScheduleConflict,
    ScheduleNotFound,
    UsageError,
)
from durio.model.names import did_you_mean
from durio.model.options import NO_OPTIONS
from durio.model.schedule import schedules_kind

T = TypeVar("T")
NAMES_MAX = 1000  # names that are compared with a misspelt one
SHOWN_MAX = 8
NAME_ARGUMENT = click.argument("schedule", metavar="NAME")
# --- running


def run_on(
    selection: AppSelection,
    name: str,
    work: Callable[[App], Awaitable[T]],
    by: str | None = None,
) -> T:
    """Run work on one schedule; errors name the flags, and a name that is close."""
    who = operator(by)

    async def ask(app: App) -> T:
        app.schedules.by = who
        try:
            return await work(app)
        except ScheduleNotFound as error:
            error.cure = await names_cure(app, name, selection.flags())
            raise
        except InvalidSchedule as error:
            raise as_flags(error) from None

    return selection.run(ask)


async def names_cure(app: App, name: str, flags: str) -> str:
    """Return the cure for a name that no schedule has."""
    if name in app.schedules.declared:
        return "The code declares it. It is stored when a worker starts."
    kind = schedules_kind(app.name)
    records = await (await app.store()).list_records(kind, limit=NAMES_MAX)
    known = [record.name for record in records]
    if not known:
        return f"App {app.name} has no schedules. See: durio schedules add --help"
    shown = ", ".join(known[:SHOWN_MAX])
    return f"Known: {shown}.{did_you_mean(name, known)}\nSee: durio schedules ls{flags}"


def show_change(
    selection: AppSelection, before: Schedule | None, after: Schedule, app: App
) -> None:
    """Print a schedule after a command that may have changed it."""
    is_changed = before is None or before.version != after.version
    if selection.is_json:
        more = {"namespace": app.name, "changed": is_changed}
        show_json({**after.to_dict(), **more})
        return
    state = after.state
    if before is not None and before.state != state:
        state = f"{before.state} -> {state}"
    same = "" if is_changed else "  (unchanged)"
    due = next_text(after.state, after.next_at, app.now())
    coming = f"  next {cell(after.next_at)} ({due})" if after.next_at else ""
    show_text(f"{after.name}  {state}{same}{coming}")


async def show_new_definition(
    selection: AppSelection, old: StoredSchedule, after: Schedule, app: App
) -> None:
    """Print a schedule after a change, with what differs."""
    before = schedule_view(old.record, await store_now(app))
    show_change(selection, before, after, app)
    if not selection.is_json:
        new = await read_schedule(app, after.name)
        for each in differences(old.schedule.definition, new.schedule.definition):
            show_text("  {}: {} -> {}".format(*each))


# --- add, edit, reset


@click.command("add", short_help="Store a new schedule.")
@NAME_ARGUMENT
@click.argument("task", metavar="[TASK]", required=False)
@click.argument("arguments", metavar="[JSON]", default="", required=False)
@plan_option
@choice_options
@job_options
@BY_OPTION
@selection_options
@keep_lines
def add_schedule(
    *,
    selection: AppSelection,
    schedule: str,
    task: str | None,
    arguments: str,
    plan: str | None,
    by: str | None,
    **given: Any,
) -> None:
    r"""Store a new schedule: the task runs when --cron, --every or --at says.

    JSON is an object of keyword arguments or an array of positional ones, as in `durio
    enqueue`. Task and arguments are checked against the App of --app, or else against
    what workers have published. Running workers see the schedule within a second. With
    --plan FILE it runs a plan instead of a task; write its file with Python:
    json.dumps(plan.to_dict()).

    \b
    Examples:
      durio schedules add nightly clean_up --cron '0 2 * * *' --tz Europe/Paris
      durio schedules add import --plan import.json --every 1h
      durio schedules add poll check_mail '{"box": "in"}' --every 30s --overlap skip
      durio schedules add once send_report '[42]' --at 2030-01-31T09:00:00Z

    With --json: the fields of the schedule (see `durio schedules show --help`),
    "namespace" and "changed".

    \b
    Exit codes: 1 there is a schedule of this name; 2 wrong task, arguments or options
    """
    if (task is None) == (plan is None):
        raise UsageError(
            "TASK and --plan are both given" if task else "no TASK is given",
            cure=f"Give one: durio schedules add {schedule} TASK, or --plan FILE.",
        )
    typed = f"durio schedules add {schedule} {task}"
    options, (args, kwargs) = take_options(given), parse_arguments(arguments, typed)
    what = read_plan(plan, options) if plan is not None else None
    first = task or first_task(what.to_dict() if what is not None else {})
    choices, who = parse_choices(given), operator(by)
    if not any(rule in choices for rule in RULES):
        raise InvalidSchedule("nothing says when the schedule is due", cure=RULES_CURE)

    async def ask(app: App) -> None:
        await check_namespace(app, first)
        app.schedules.by = who
        try:
            chosen = NO_OPTIONS.with_changes(options)
            link = what or task_link(app, first, args, kwargs, chosen)
            made = await app.schedules.create(schedule, link, **choices)
        except ScheduleConflict as error:
            change = f"durio schedules edit {schedule}{selection.flags()}"
            error.cure = f"Use another name, or change it: {change}"
            raise
        except InvalidSchedule as error:
            raise as_flags(error) from None
        show_change(selection, None, made, app)

    of_task(selection, first).run_enqueue(first, ask)


def of_task(selection: AppSelection, task: str) -> AppSelection:
    """Return the selection; if it names no App, with the App of a full task name."""
    namespace, dot, _ = task.partition(".")
    if dot and selection.place() is None and selection.named() is None:
        return replace(selection, name=namespace)
    return selection


@click.command("edit", short_help="Change a schedule.")
@NAME_ARGUMENT
@click.option("--task", metavar="TASK", help="Run another task; give its --args too.")
@click.option(
    "--args", "arguments", metavar="JSON", help="Run it with these arguments instead."
)
@plan_option
@choice_options
@job_options
@click.option(
    "--version",
    type=int,
    metavar="N",
    help="Only if it still has this version, which `show` prints.",
)
@BY_OPTION
@selection_options
@keep_lines
def edit_schedule(
    *,
    selection: AppSelection,
    schedule: str,
    task: str | None,
    arguments: str | None,
    plan: str | None,
    version: int | None,
    by: str | None,
    **given: Any,
) -> None:
    r"""Change a schedule; what is not given stays as it is.

    A new --cron, --every or --at replaces the rule, and --exclude all excluded dates.
    Another task has only the arguments and options that are given with it.
    Jobs that the schedule has made stay as they are. A schedule of the code becomes
    `manual`: deploys no longer change it, until `durio schedules reset`.

    \b
    Examples:
      durio schedules edit nightly --cron '0 3 * * *'
      durio schedules edit nightly --end none --exclude 2030-12-25 --exclude 2030-12-26
      durio schedules edit digest --args '{"user": 43}' --version 17
      durio schedules edit digest --queue night --priority 2

    With --json: the fields of the schedule (see `durio schedules show --help`),
    "namespace" and "changed".

    \b
    Exit codes: 1 no such schedule, or it has another version; 2 wrong options
    """
    options, typed = take_options(given), f"durio schedules edit {schedule} --args"
    choices = parse_choices(given)
    known = None if arguments is None else parse_arguments(arguments, typed)
    others = {"task": task, "args": arguments, **options}
    what = None if plan is None else read_plan(plan, others)
    is_linked = what is None and any(each is not None for each in others.values())
    if not choices and not is_linked and what is None:
        raise UsageError("nothing to change is given", cure="See the options: --help")

    async def ask(app: App) -> None:
        old, link, expected = await read_schedule(app, schedule), what, version
        if is_linked:
            link = edited_link(app, old.schedule, task, known, options)
            # What is not given was read now: a change meanwhile must not be lost.
            expected = old.schedule.version if version is None else version
        try:
            after = await app.schedules.change(
                schedule, link, version=expected, **choices
            )
        except ScheduleConflict as error:
            see = f"durio schedules show {schedule}{selection.flags()}"
            error.cure = f"Look at it, and repeat the change with its version: {see}"
            raise
        await show_new_definition(selection, old, after, app)
        if old.schedule.origin == "code" and not selection.is_json:
            back = f"durio schedules reset {schedule}{selection.flags()}"
            show_text(f"Deploys no longer change it. To undo that: {back}")

    run_on(selection, schedule, ask, by)


@click.command("reset", short_help="Give a changed schedule back to the code.")
@NAME_ARGUMENT
@BY_OPTION
@selection_options
@keep_lines
def reset_schedule(*, selection: AppSelection, schedule: str, by: str | None) -> None:
    r"""Undo changes of people: the schedule is again what the code declares.

    A pause stays. `durio schedules show` prints what the code declares.

    \b
    Example:
      durio schedules reset nightly

    With --json: the fields of the schedule, "namespace" and "changed".

    \b
    Exit codes: 1 no such schedule; 2 no code declares it
    """

    async def ask(app: App) -> None:
        old = await read_schedule(app, schedule)
        try:
            after = await app.schedules.reset(schedule)
        except InvalidSchedule as error:
            edit = f"durio schedules edit {schedule}{selection.flags()}"
            error.cure = (
                f"Change it: {edit}\nOr delete it: durio schedules rm {schedule}"
            )
            raise
        await show_new_definition(selection, old, after, app)

    run_on(selection, schedule, ask, by)
