"""`durio schedules run`, `preview` and `backfill`: runs now, to come, and in the past."""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, grouped_options, selection_options
from durio.cli.enqueue import parse_moment
from durio.cli.main import keep_lines
from durio.cli.output import cell, show_json, show_text
from durio.cli.prompts import BY_OPTION, YES_OPTION, confirm
from durio.cli.schedule_choices import as_flags
from durio.cli.schedule_edit import NAME_ARGUMENT, run_on
from durio.cli.schedule_output import run_fields, show_runs
from durio.client.backfills import Backfill
from durio.client.handle import Job
from durio.client.schedule_details import why_no_run
from durio.client.schedule_store import read_schedule, store_now
from durio.client.schedule_view import schedule_view
from durio.host.clock import HostClock
from durio.model.backfill import AT_A_TIME_MAX
from durio.model.cron import PREVIEW_MAX, CronRun
from durio.model.cron_zone import zone_of
from durio.model.errors import InvalidSchedule, OperatingError, UsageError
from durio.model.job import utc_datetime
from durio.model.quantities import counted
from durio.model.schedule_checks import rule_of
from durio.model.schedule_tick import coming_runs

UTC_NAME = "UTC"


@click.command("run")
@NAME_ARGUMENT
@click.option("--force", is_flag=True, help="Even while a run of it goes on.")
@BY_OPTION
@selection_options
@keep_lines
def run_schedule(
    *, selection: AppSelection, schedule: str, force: bool, by: str | None
) -> None:
    r"""Make one job of a schedule now, and print its id.

    The next tick stays when it is due. A paused schedule can be run, too.

    \b
    Example:
      durio schedules run nightly

    With --json: {"id", "is_plan", "task", "schedule"}; "id" is that of a plan if the
    schedule runs one.

    \b
    Exit codes: 1 no such schedule, a run of it goes on, or its queue is closed
    """

    async def ask(app: App) -> None:
        task = (await app.schedules.get(schedule)).task
        run = await app.schedules.run(schedule, force=force)
        is_plan = not isinstance(run, Job)
        if selection.is_json:
            names = {"task": task, "schedule": schedule}
            show_json({"id": run.id, "is_plan": is_plan, **names})
        else:
            show_text(f"enqueued  {'plan ' if is_plan else ''}{run.id}  {task}")

    run_on(selection, schedule, ask, by)


# --- preview


class RunPreview(NamedTuple):
    """The runs to come of a schedule, or of a cron text."""

    schedule: str | None
    rule: str  # in words
    tz: str
    runs: list[CronRun]
    now: float
    none: str = "none"  # what is shown without runs
    note: str | None = None


@click.command("preview", short_help="Show when a schedule or a cron text is due.")
@click.argument("schedule", metavar="[NAME]", required=False)
@click.option(
    "--cron", metavar="TEXT", help="Preview this text, not a stored schedule."
)
@click.option(
    "--tz",
    metavar="ZONE",
    help="Of --cron: its time zone. Of NAME: show this zone, too (default UTC).",
)
@click.option(
    "--count",
    type=click.IntRange(1, PREVIEW_MAX),
    metavar="N",
    default=10,
    show_default=True,
    help="Show N runs.",
)
@click.option(
    "--after", metavar="TIME", help="Show runs after this time (default now)."
)
@selection_options
@keep_lines
def preview_schedule(
    *,
    selection: AppSelection,
    schedule: str | None,
    cron: str | None,
    tz: str | None,
    count: int,
    after: str | None,
) -> None:
    r"""Say in words when a schedule is due, and show its next runs in two time zones.

    Notes say what daylight saving does to a run. Jitter is not included. With --cron
    neither an App nor a store is needed.

    \b
    Examples:
      durio schedules preview nightly --tz America/New_York
      durio schedules preview --cron '30 2 * * *' --tz Europe/Paris --after 2030-03-30T00:00Z

    With --json: {"schedule", "rule", "tz", "other_tz", "runs": [{"at", "at_other",
    "note"}]}; "at" is by the clock of "tz", "at_other" by that of "other_tz".
    """
    moment = None if after is None else parse_moment("after", after)
    if (schedule is None) == (cron is None):
        raise UsageError(
            "NAME and --cron are both given"
            if schedule
            else "neither NAME nor --cron is given",
            cure="Give one: durio schedules preview NAME, or --cron '0 2 * * *'.",
        )
    zone = UTC_NAME if tz is None else known_zone(tz)
    if schedule is None:
        seen = preview_of_text(cron or "", zone, count, moment)
        other = UTC_NAME
    else:
        seen, other = preview_of_schedule(selection, schedule, count, moment), zone
    show_preview(selection, seen, other)


def known_zone(tz: str) -> str:
    try:
        return zone_of(tz).key
    except InvalidSchedule as error:
        raise as_flags(error) from None


def preview_of_text(
    cron: str, tz: str, count: int, after: datetime | None
) -> RunPreview:
    now = HostClock().now()
    try:
        rule = rule_of({"cron": cron, "tz": tz}, None)
    except InvalidSchedule as error:
        raise as_flags(error) from None
    runs = rule.preview(now if after is None else after.timestamp(), count)
    return RunPreview(None, rule.describe(), tz, runs, now)


def preview_of_schedule(
    selection: AppSelection, name: str, count: int, after: datetime | None
) -> RunPreview:
    async def ask(app: App) -> RunPreview:
        stored, now = await read_schedule(app, name), await store_now(app)
        schedule = schedule_view(stored.record, now)
        moment = now if after is None else after.timestamp()
        runs = coming_runs(stored.schedule, moment, count)
        is_paused = schedule.state == "paused"
        note = (
            f"It is {schedule.note}: no run until it is resumed." if is_paused else None
        )
        none = why_no_run(schedule)
        return RunPreview(name, schedule.rule, schedule.tz, runs, now, none, note)

    return run_on(selection, name, ask)


def show_preview(selection: AppSelection, seen: RunPreview, other: str) -> None:
    if selection.is_json:
        runs = [run_fields(run, other) for run in seen.runs]
        head = {"schedule": seen.schedule, "rule": seen.rule, "tz": seen.tz}
        show_json({**head, "other_tz": other, "runs": runs})
        return
    show_text(seen.rule)
    show_runs(seen.runs, seen.tz, other, seen.now, seen.none)
    if seen.note:
        show_text(seen.note)


# --- backfill


class BackfillNotFound(OperatingError):
    """No backfill has that id."""

    code = "backfill_not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillSpan:
    """Which ticks a backfill makes, as given on the command line."""

    start: str | None
    end: str | None
    at_a_time: int

    def times(self) -> tuple[datetime, datetime]:
        if self.start is None or self.end is None:
            raise UsageError(
                "--from and --to are needed",
                cure="Give two times: --from 2030-01-01T00:00Z --to 2030-02-01T00:00Z",
            )
        return parse_moment("from", self.start), parse_moment("to", self.end)


span_options = grouped_options(
    "span",
    BackfillSpan,
    click.option(
        "--from", "start", metavar="TIME", help="The first tick is not before."
    ),
    click.option("--to", "end", metavar="TIME", help="The last tick is before."),
    click.option(
        "--at-a-time",
        type=click.IntRange(1, AT_A_TIME_MAX),
        metavar="N",
        default=10,
        show_default=True,
        help="Most jobs of the backfill that run at the same time.",
    ),
)


@click.command("backfill", short_help="Make the ticks of a time in the past again.")
@NAME_ARGUMENT
@span_options
@click.option("--cancel", metavar="ID", help="Stop this backfill; its jobs go on.")
@YES_OPTION
@click.option("--dry-run", is_flag=True, help="Count the ticks; make no job.")
@BY_OPTION
@selection_options
@keep_lines
def backfill_schedule(
    *,
    selection: AppSelection,
    schedule: str,
    span: BackfillSpan,
    cancel: str | None,
    yes: bool,
    dry_run: bool,
    by: str | None,
) -> None:
    r"""Make one job for each tick of a time in the past, whether it ran or not.

    Shows the number of ticks, the first and the last, and asks before it starts. At
    most 10,000 ticks. A running worker makes the jobs; `durio schedules show` says how
    far it is. In the task, `ctx.tick.is_backfill` is true.

    \b
    Examples:
      durio schedules backfill nightly --from 2030-01-01T00:00Z --to 2030-02-01T00:00Z
      durio schedules backfill nightly --cancel 0198c2f4

    With --json: {"id", "schedule", "total", "made", "failed", "at_a_time", "first_at",
    "last_at", "until", "is_over", "dry_run"}; "id" is empty with --dry-run. With
    --cancel: {"id", "schedule", "made", "total", "cancelled"}.

    \b
    Exit codes: 1 not confirmed, or no such schedule; 2 wrong times, or no tick
    """
    if cancel is not None:
        cancel_backfill(selection, schedule, cancel, by)
        return
    start, end = span.times()

    async def ask(app: App, *, is_dry: bool) -> tuple[Backfill, datetime | None]:
        found = await app.schedules.backfill(
            schedule, start, end, at_a_time=span.at_a_time, dry_run=is_dry
        )
        rule = (await read_schedule(app, schedule)).schedule.definition.rule
        until = math.nextafter(end.timestamp(), -math.inf)
        return found, utc_datetime(rule.latest(until, -math.inf))

    backfill = run_on(selection, schedule, lambda app: ask(app, is_dry=True))
    if not dry_run:
        confirm(f"{ticks_text(*backfill)} will be made", yes=yes)
        backfill = run_on(selection, schedule, lambda app: ask(app, is_dry=False), by)
    show_backfill(selection, *backfill, dry_run=dry_run)


def ticks_text(backfill: Backfill, last_at: datetime | None) -> str:
    jobs = f"{counted(backfill.total, 'job')} of schedule {backfill.schedule}"
    first = cell(backfill.first_at)
    if backfill.total == 1:
        return f"{jobs}, of the tick {first},"
    most = f"at most {backfill.at_a_time} at a time"
    return f"{jobs}, of ticks from {first} to {cell(last_at)}, {most},"


def show_backfill(
    selection: AppSelection,
    backfill: Backfill,
    last_at: datetime | None,
    *,
    dry_run: bool,
) -> None:
    if selection.is_json:
        more: dict[str, Any] = {"last_at": last_at, "dry_run": dry_run}
        show_json({**backfill.to_dict(), **more})
        return
    text = ticks_text(backfill, last_at)
    if dry_run:
        show_text(f"{text} would be made")
        return
    show_text(f"backfill {backfill.id}: {text} will be made by the workers")
    name, flags = backfill.schedule, selection.flags()
    show_text(f"See how far it is: durio schedules show {name}{flags}")


def cancel_backfill(
    selection: AppSelection, name: str, text: str, by: str | None
) -> None:
    """Stop a backfill, given by its id or the beginning of it."""

    async def ask(app: App) -> Backfill:
        await read_schedule(app, name)
        backfills = [
            each for each in await app.schedules.backfills() if each.schedule == name
        ]
        found = [each for each in backfills if each.id.startswith(text.lower())]
        if len(found) != 1 or not text:
            ids = ", ".join(each.id for each in backfills) or "none"
            number = "several ids" if len(found) > 1 else "no id"
            raise BackfillNotFound(
                f"{text[:60]!r} begins {number} of a backfill of {name}",
                cure=f"Those of the last 7 days: {ids}",
            )
        await app.schedules.cancel_backfill(found[0].id)
        return found[0]

    backfill = run_on(selection, name, ask, by)
    counts = {"made": backfill.made, "total": backfill.total}
    if selection.is_json:
        show_json({"id": backfill.id, "schedule": name, **counts, "cancelled": True})
    else:
        made = f"{backfill.made} of {counted(backfill.total, 'tick')} made"
        show_text(f"{backfill.id}  cancelled, {made}")
