"""The options of `durio schedules add` and `edit`: when a schedule is due, and its policies."""

import re
from typing import Any, get_args

import click

from durio.cli.apps import with_options
from durio.cli.enqueue import parse_moment
from durio.model.errors import InvalidSchedule, UsageError
from durio.model.quantities import seconds
from durio.model.schedule import Catchup, Overlap
from durio.model.schedule_checks import CATCHUP_COUNT_MAX, RUNS_MAX

RULES = ("cron", "every", "at")
RULES_CURE = "Give one: --cron '0 2 * * *', --every 5m or --at 2030-01-31T09:00:00Z."
NOTHING = "none"  # as a value it takes a bound away
# How Python code writes an option: `tz='UTC'`, `every=`, `fixed_delay`.
IN_CODE = re.compile(
    r"\b(cron|every|at|tz)=(?:(['\"])(.*?)\2|(?=[ ,]))|\bfixed_delay\b"
)


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

    text = text.replace("Give another plan.", "Give another plan: --plan FILE")
    return IN_CODE.sub(flag, text).replace("task.enqueue(...)", "durio enqueue")
