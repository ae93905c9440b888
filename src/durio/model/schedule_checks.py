"""Check what users say about a schedule, and build its definition.

Everything that can be known without the store is checked here: text of cron, times, zones,
bounds. What is wrong raises InvalidSchedule before anything is written.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any, TypedDict, cast, get_args, get_type_hints
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from durio.model.cron import Cron
from durio.model.cron_zone import zone_of
from durio.model.errors import InvalidOption, InvalidSchedule
from durio.model.names import did_you_mean
from durio.model.quantities import Duration, format_duration, seconds
from durio.model.schedule import (
    CATCHUP_MAX,
    CATCHUP_WINDOW_SECONDS,
    Catchup,
    Definition,
    Overlap,
    default_overlap,
)
from durio.model.schedule_rule import EXCLUDED_MAX, INTERVAL_SECONDS_MIN, Rule, local

EVERY = "@every"
NAME_SHAPE = re.compile(r"[\w.:-]{1,128}", re.ASCII)
CATCHUP_COUNT_MAX = 1000
RUNS_MAX = 1_000_000_000
YEAR_MIN, YEAR_MAX = 1970, 9000


class CommonChoices(TypedDict, total=False):
    """What every schedule may have."""

    tz: str | ZoneInfo | None  # of cron and of excluded dates; default UTC
    start: datetime | None  # no tick before
    end: datetime | None  # no tick after
    exclude: Iterable[date | str]  # dates without ticks
    overlap: Overlap  # what a tick does while the run before it goes on
    catchup: Catchup  # which late ticks run after downtime
    catchup_window: Duration  # older ticks do not run; default 24 h
    catchup_max: int  # most late ticks of `catchup="all"`; default 100
    jitter: Duration  # longest random delay of a job
    max_runs: int | None  # the schedule ends after so many runs
    pause_on_failure: bool  # a failed run pauses the schedule


class CronChoices(CommonChoices, total=False):
    """The choices of `app.cron`."""


class IntervalChoices(CommonChoices, total=False):
    """The choices of `app.every`."""

    fixed_delay: bool  # the interval counts from the end of the run before


class Choices(IntervalChoices, total=False):
    """The choices of `app.schedules.create`."""

    cron: str | Cron | None
    every: Duration | None
    at: datetime | None  # once, at this time


CHOICES = tuple(get_type_hints(Choices))
RULE_CHOICES = ("cron", "every", "at", "tz", "start", "end", "exclude")


def check_schedule_name(name: object) -> str:
    if isinstance(name, str) and NAME_SHAPE.fullmatch(name):
        return name
    raise InvalidSchedule(
        f"a schedule cannot be named {name!r:.80}",
        cure="Use 1 to 128 letters, digits, and _ . : - only.",
    )


def check_choices(given: Mapping[str, Any]) -> None:
    """Refuse names that no schedule has."""
    for name in given:
        if name not in CHOICES:
            raise InvalidSchedule(
                f"a schedule has no {name!r}",
                cure=f"It has {', '.join(CHOICES)}.{did_you_mean(name, CHOICES)}",
            )


def definition_of(
    link: dict[str, Any], given: Mapping[str, Any], now: float | None
) -> Definition:
    """Return the definition of a schedule; with a time, refuse one that is over."""
    check_choices(given)
    rule = rule_of(given, now)
    catchup = _one_of("catchup", given.get("catchup", "latest"), get_args(Catchup))
    default = default_overlap(catchup)
    overlap = _one_of("overlap", given.get("overlap", default), get_args(Overlap))
    jitter = seconds(given.get("jitter", 0.0), "jitter")
    if jitter:
        _check_jitter(jitter, rule, now or 0.0)
    return Definition(
        link=link,
        rule=rule,
        overlap=overlap,
        catchup=catchup,
        catchup_window=seconds(
            given.get("catchup_window", CATCHUP_WINDOW_SECONDS), "catchup_window"
        ),
        catchup_max=_count(
            "catchup_max", given.get("catchup_max", CATCHUP_MAX), CATCHUP_COUNT_MAX
        ),
        jitter=jitter,
        max_runs=_runs(given.get("max_runs")),
        pause_on_failure=_flag(
            "pause_on_failure", given.get("pause_on_failure", False)
        ),
    )


def _check_jitter(jitter: float, rule: Rule, now: float) -> None:
    """Refuse a delay after which a job could start later than that of the next tick."""
    shortest = rule.interval_up_to(jitter, now)
    if shortest is not None:
        raise InvalidSchedule(
            f"jitter of {format_duration(jitter)} is not shorter than the interval of "
            f"{format_duration(shortest)} between two ticks",
            cure="A job would start after that of the next tick: use less jitter.",
        )


def choices_of(definition: Definition) -> dict[str, Any]:
    """Return the choices that give this definition, as `definition_of` takes them."""
    rule = definition.rule
    return {
        "cron": rule.cron,
        "every": rule.every,
        "at": None if rule.at is None else local(rule.at, rule.tz),
        "tz": rule.tz,
        "fixed_delay": rule.fixed_delay,
        "start": None if rule.start is None else local(rule.start, rule.tz),
        "end": None if rule.end is None else local(rule.end, rule.tz),
        "exclude": rule.exclude,
        "overlap": definition.overlap,
        "catchup": definition.catchup,
        "catchup_window": definition.catchup_window,
        "catchup_max": definition.catchup_max,
        "jitter": definition.jitter,
        "max_runs": definition.max_runs,
        "pause_on_failure": definition.pause_on_failure,
    }


def rule_of(given: Mapping[str, Any], now: float | None) -> Rule:
    """Return the rule; with a time, refuse one that has no tick after it."""
    cron, every, at = (given.get(name) for name in ("cron", "every", "at"))
    if isinstance(cron, str) and cron.strip().lower().startswith(EVERY):
        if every is not None:
            raise _one_rule(["cron", "every"])
        cron, every = None, cron.strip()[len(EVERY) :].strip()
    chosen = {"cron": cron, "every": every, "at": at}
    named = [name for name, value in chosen.items() if value is not None]
    if len(named) != 1:
        raise _one_rule(named)
    tz = given.get("tz")
    if isinstance(cron, Cron):
        if tz is not None and zone_of(tz).key != cron.tz:
            raise InvalidSchedule(
                f"the cron is in {cron.tz}, and tz is {zone_of(tz).key}",
                cure="Leave tz out: the Cron has its own.",
            )
        cron, tz = cron.text, cron.tz
    zone = zone_of("UTC" if tz is None else tz).key
    rule = Rule(
        cron=None if cron is None else Cron(cron, tz=zone).text,
        every=None if every is None else _interval(every),
        at=_time("at", at),
        tz=zone,
        fixed_delay=_flag("fixed_delay", given.get("fixed_delay", False)),
        start=_time("start", given.get("start")),
        end=_time("end", given.get("end")),
        exclude=_dates(given.get("exclude", ())),
    )
    _check_times(rule, now)
    return rule


def _check_times(rule: Rule, now: float | None) -> None:
    if rule.fixed_delay and rule.every is None:
        raise InvalidSchedule(
            "fixed_delay is for every=, and there is none",
            cure="Leave fixed_delay out, or give every= a duration.",
        )
    if rule.start is not None and rule.end is not None and rule.end <= rule.start:
        raise InvalidSchedule(
            f"the end {_shown(rule.end, rule)} is not after the start "
            f"{_shown(rule.start, rule)}",
            cure="Exchange them, or leave one out.",
        )
    if now is None:
        return
    if rule.at is not None and rule.at <= now:
        raise InvalidSchedule(
            f"at is {_shown(rule.at, rule)}, which is in the past",
            cure="Give a later time, or enqueue the task now: task.enqueue(...).",
        )
    if _first_tick(rule, now) is None:
        what = "no date that is not excluded" if rule.exclude else "no time"
        raise InvalidSchedule(
            f"the schedule has {what} after {_shown(now, rule)}",
            cure="Check cron, start, end and exclude.",
        )


def _first_tick(rule: Rule, now: float) -> float | None:
    """Return the first tick of a schedule that is stored now."""
    if rule.fixed_delay:
        return rule.after_end(now)
    return replace(rule, anchor=now if rule.start is None else rule.start).after(now)


def _one_rule(named: list[str]) -> InvalidSchedule:
    what = (
        f"{' and '.join(named)} are given" if named else "nothing says when it is due"
    )
    return InvalidSchedule(
        f"a schedule has one of cron, every and at, but {what}",
        cure='Give one: cron="0 2 * * *", every="5m", or at=datetime(..., tzinfo=UTC).',
    )


def _interval(every: Duration) -> float:
    value = seconds(every, "every")
    if value < INTERVAL_SECONDS_MIN:
        raise InvalidSchedule(
            f"an interval of {every!r:.40} is too short",
            cure=f"The shortest is {INTERVAL_SECONDS_MIN * 1000:.0f} ms; a task that runs "
            "all the time can enqueue itself, or raise Snooze.",
        )
    return value


def _time(name: str, value: Any) -> float | None:
    return None if value is None else aware(name, value)


def aware(name: str, value: Any) -> float:
    """Return a time as seconds since 1970; refuse one without a zone, or that never is."""
    if not isinstance(value, datetime):
        raise InvalidSchedule(
            f"{name} cannot be {value!r:.60}",
            cure="Give a datetime with a zone, such as datetime(2030, 1, 31, 9, tzinfo=UTC).",
        )
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidSchedule(
            f"{name} has no time zone: {value.isoformat()}",
            cure="Add one: datetime(..., tzinfo=UTC), or tzinfo=ZoneInfo('Europe/Paris').",
        )
    # A year more on both sides: 1970 in UTC is 1969 in New York.
    if not YEAR_MIN - 1 <= value.year <= YEAR_MAX + 1:
        raise InvalidSchedule(
            f"{name} is in the year {value.year}",
            cure=f"Give a time from {YEAR_MIN} to {YEAR_MAX}, or leave {name} out.",
        )
    back = value.astimezone(UTC).astimezone(value.tzinfo)
    if back.replace(tzinfo=None, fold=0) != value.replace(tzinfo=None, fold=0):
        raise InvalidSchedule(
            f"{name} is {value.isoformat()}, a time that daylight saving skips there",
            cure=f"The clock shows {back.isoformat()} at that moment: give that time.",
        )
    return value.timestamp()


def _dates(given: Any) -> tuple[str, ...]:
    if isinstance(given, str | date):
        given = (given,)
    if not isinstance(given, Iterable):
        raise InvalidSchedule(
            f"exclude cannot be {given!r:.60}",
            cure="Give a list of dates, such as ['2030-12-25'].",
        )
    found = {_date(value) for value in cast("Iterable[Any]", given)}
    if len(found) > EXCLUDED_MAX:
        raise InvalidSchedule(
            f"{len(found)} dates are excluded",
            cure=f"A schedule excludes at most {EXCLUDED_MAX} dates.",
        )
    return tuple(sorted(found))


def _date(value: Any) -> str:
    if isinstance(value, datetime):
        value = value.date()
    if isinstance(value, date):
        return value.isoformat()
    try:
        return date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        raise InvalidSchedule(
            f"exclude has {value!r:.60}, which is not a date",
            cure="Give dates, or text such as '2030-12-25'.",
        ) from None


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> Any:
    if value in known:
        return value
    raise InvalidSchedule(
        f"{name} cannot be {value!r:.60}",
        cure=f"It is one of {', '.join(known)}.{did_you_mean(str(value), known)}",
    )


def _count(name: str, value: Any, most: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    raise InvalidSchedule(
        f"{name} cannot be {value!r:.40}", cure=f"Give a number from 1 to {most:,}."
    )


def _runs(value: Any) -> int | None:
    return None if value is None else _count("max_runs", value, RUNS_MAX)


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidOption(f"{name} cannot be {value!r:.40}", cure="Give True or False.")


def _shown(moment: float, rule: Rule) -> str:
    return local(moment, rule.tz).isoformat(" ", "seconds")
