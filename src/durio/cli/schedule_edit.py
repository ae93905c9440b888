"""`durio schedules add`, `edit` and `reset`: the options of a schedule, and their checks."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar, get_args

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, selection_options, with_options
from durio.cli.enqueue import parse_arguments, parse_moment
from durio.cli.known_names import check_namespace
from durio.cli.main import keep_lines
from durio.cli.output import cell, show_json, show_text
from durio.cli.prompts import BY_OPTION, operator
from durio.cli.schedule_output import differences, next_text
from durio.client.schedule_store import StoredSchedule, read_schedule
from durio.client.schedule_view import Schedule, schedule_view
from durio.model.errors import (
    InvalidSchedule,
    ScheduleConflict,
    ScheduleNotFound,
    UsageError,
)
from durio.model.names import did_you_mean
from durio.model.quantities import seconds
from durio.model.schedule import Catchup, Overlap, schedules_kind
from durio.model.schedule_checks import CATCHUP_COUNT_MAX, RUNS_MAX

T = TypeVar("T")
RULES = ("cron", "every", "at")
RULES_CURE = "Give one: --cron '0 2 * * *', --every 5m or --at 2030-01-31T09:00:00Z."
NAMES_MAX = 1000  # names that are compared with a misspelt one
SHOWN_MAX = 8
NOTHING = "none"  # as a value it takes a bound away
# How Python code writes an option: `tz='UTC'`, `every=`, `fixed_delay`.
IN_CODE = re.compile(
    r"\b(cron|every|at|tz)=(?:(['\"])(.*?)\2|(?=[ ,]))|\bfixed_delay\b"
)

NAME_ARGUMENT = click.argument("schedule", metavar="NAME")
choice_options = with_options(
    click.option(
        "--cron",
        metavar="TEXT",
        help="Due by cron: minute, hour, day of month, month, day of week.",
    ),
    click.option("--every", metavar="DURATION", help="Due at an interval, such as 5m."),
    click.option("--at", metavar="TIME", help="Due once, such as 2030-01-31T09:00Z."),
    click.option(
        "--tz",
        metavar="ZONE",
        help="Time zone of --cron and --exclude, such as Europe/Paris (default UTC).",
    ),
    click.option(
        "--overlap",
        type=click.Choice(get_args(Overlap)),
        help="What a tick does while the run before it goes on (default skip).",
    ),
    click.option(
        "--catchup",
        type=click.Choice(get_args(Catchup)),
        help="Which late ticks run after downtime (default latest).",
    ),
    click.option(
        "--catchup-window",
        metavar="DURATION",
        help="Late ticks that are older do not run (default 24h).",
    ),
    click.option(
        "--catchup-max",
        type=click.IntRange(1, CATCHUP_COUNT_MAX),
        metavar="N",
        help="Most late ticks that run with --catchup all (default 100).",
    ),
    click.option(
        "--jitter", metavar="DURATION", help="Longest random delay of each job."
    ),
    click.option("--start", metavar="TIME", help="No tick before; none: no bound."),
    click.option("--end", metavar="TIME", help="No tick after; none: no bound."),
    click.option(
        "--exclude",
        multiple=True,
        metavar="DATE",
        help="No tick on this date, such as 2030-12-25; may be repeated; none: no date.",
    ),
    click.option(
        "--max-runs", metavar="N", help="End after N runs; none: without a limit."
    ),
    click.option(
        "--pause-on-failure/--no-pause-on-failure",
        default=None,
        help="Pause the schedule when a run fails.",
    ),
    click.option(
        "--fixed-delay/--no-fixed-delay",
        default=None,
        help="Count --every from the end of the run before.",
    ),
)


# --- choices


def parse_choices(given: dict[str, Any]) -> Any:
    """Return the choices that were given, as `app.schedules.create` takes them."""
    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    named = [f"--{name}" for name in RULES if name in chosen]
    if len(named) > 1:
        raise InvalidSchedule(
            f"{' and '.join(named)} are given, and a schedule has one of them",
            cure=RULES_CURE,
        )
    return {name: parse_choice(name, value) for name, value in chosen.items()}


def parse_choice(name: str, value: Any) -> Any:
    flag = f"--{name.replace('_', '-')}"
    match name:
        case "every" | "jitter" | "catchup_window":
            return seconds(value, flag)
        case "at":
            return parse_moment(name, value)
        case "start" | "end":
            return None if value == NOTHING else parse_moment(name, value)
        case "exclude":
            return () if value == (NOTHING,) else value
        case "max_runs":
            return None if value == NOTHING else parse_runs(value)
        case _:
            return value


def parse_runs(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text[:20]) <= RUNS_MAX:
        return int(text)
    raise UsageError(
        f"--max-runs cannot be {text[:40]!r}",
        cure=f"Give a number from 1 to {RUNS_MAX:,}, or none.",
    )


def as_flags(error: InvalidSchedule) -> InvalidSchedule:
    """Return the error with options as the command line writes them: `--tz UTC`."""
    error.what, error.cure = in_flags(error.what), in_flags(error.cure)
    return error


def in_flags(text: str) -> str:
    def flag(found: re.Match[str]) -> str:
        if found[1] is None:
            return "--fixed-delay"
        return f"--{found[1]} {found[3]}" if found[3] else f"--{found[1]}"

    return IN_CODE.sub(flag, text).replace("task.enqueue(...)", "durio enqueue")


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
    show_change(selection, schedule_view(old.record, app.now()), after, app)
    if not selection.is_json:
        new = await read_schedule(app, after.name)
        for each in differences(old.schedule.definition, new.schedule.definition):
            show_text("  {}: {} -> {}".format(*each))


# --- add, edit, reset


@click.command("add", short_help="Store a new schedule.")
@NAME_ARGUMENT
@click.argument("task", metavar="TASK")
@click.argument("arguments", metavar="[JSON]", default="", required=False)
@choice_options
@BY_OPTION
@selection_options
@keep_lines
def add_schedule(
    *,
    selection: AppSelection,
    schedule: str,
    task: str,
    arguments: str,
    by: str | None,
    **given: Any,
) -> None:
    r"""Store a new schedule: the task runs when --cron, --every or --at says.

    JSON is an object of keyword arguments or an array of positional ones, as in `durio
    enqueue`. Task and arguments are checked against the App of --app, or else against
    what workers have published. Running workers see the schedule within a second.

    \b
    Examples:
      durio schedules add nightly clean_up --cron '0 2 * * *' --tz Europe/Paris
      durio schedules add poll check_mail '{"box": "in"}' --every 30s --overlap skip
      durio schedules add once send_report '[42]' --at 2030-01-31T09:00:00Z

    With --json: the fields of the schedule (see `durio schedules show --help`),
    "namespace" and "changed".

    \b
    Exit codes: 1 there is a schedule of this name; 2 wrong task, arguments or options
    """
    args, kwargs = parse_arguments(arguments, f"durio schedules add {schedule} {task}")
    choices, who = parse_choices(given), operator(by)
    if not any(rule in choices for rule in RULES):
        raise InvalidSchedule("nothing says when the schedule is due", cure=RULES_CURE)

    async def ask(app: App) -> None:
        await check_namespace(app, task)
        app.schedules.by = who
        try:
            made = await app.schedules.create(
                schedule, task, args=args, kwargs=kwargs, **choices
            )
        except ScheduleConflict as error:
            change = f"durio schedules edit {schedule}{selection.flags()}"
            error.cure = f"Use another name, or change it: {change}"
            raise
        except InvalidSchedule as error:
            raise as_flags(error) from None
        show_change(selection, None, made, app)

    of_task(selection, task).run_enqueue(task, ask)


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
@choice_options
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
    version: int | None,
    by: str | None,
    **given: Any,
) -> None:
    r"""Change a schedule; what is not given stays as it is.

    A new --cron, --every or --at replaces the rule, and --exclude all excluded dates.
    Jobs that the schedule has made stay as they are. A schedule of the code becomes
    `manual`: deploys no longer change it, until `durio schedules reset`.

    \b
    Examples:
      durio schedules edit nightly --cron '0 3 * * *'
      durio schedules edit nightly --end none --exclude 2030-12-25 --exclude 2030-12-26
      durio schedules edit digest --args '{"user": 43}' --version 17

    With --json: the fields of the schedule (see `durio schedules show --help`),
    "namespace" and "changed".

    \b
    Exit codes: 1 no such schedule, or it has another version; 2 wrong options
    """
    choices, known = parse_choices(given), dict[str, Any]()
    if arguments is not None:
        typed = f"durio schedules edit {schedule} --args"
        known["args"], known["kwargs"] = parse_arguments(arguments, typed)
    if not choices and not known and task is None:
        raise UsageError("nothing to change is given", cure="See the options: --help")

    async def ask(app: App) -> None:
        old = await read_schedule(app, schedule)
        try:
            after = await app.schedules.change(
                schedule, task, **known, version=version, **choices
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
