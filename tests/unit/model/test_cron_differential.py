"""Cron against croniter, with random texts: every difference is explained in a table."""

import calendar
import re
from datetime import UTC, datetime, timedelta
from random import Random  # noqa: TID251 - seeded: a failure can be replayed
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from durio.model.cron import Cron
from durio.model.errors import InvalidSchedule

MONTHS = tuple(name.upper() for name in calendar.month_abbr[1:])
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
NUMBERS = {name: str(n) for n, name in enumerate(MONTHS, 1)}
NUMBERS |= {name: str(n) for n, name in enumerate(WEEKDAYS)}
START = datetime(2018, 1, 1, tzinfo=UTC)
TEN_YEARS = 10 * 365 * 86400
TEXTS = 700
TIMES = 160
RUNS = 3


class Difference(NamedTuple):
    """A text like `pattern`, with names as numbers, may run at other times in croniter."""

    pattern: str
    reason: str
    example: str


DIFFERENCES = [
    Difference(
        r"\b(\d+)-\1\b",
        "A range of one value, 5-5, is every value in croniter; in cron it is the value.",
        "0 5-5 * * *",
    ),
    Difference(
        r"^\S*\b59/|^\S+ \S*\b23/|^\S+ \S+ \S*\b31/|^\S+ \S+ \S+ \S*\b12/",
        "A step from the last value, 23/1, is every value in croniter, for it reads 23-23.",
        "0 23/1 * * *",
    ),
    Difference(
        r"[ ,]\d/\S*$",
        "A step from a day of the week goes up to 6 in croniter, up to 7 here: 1/2 has SUN.",
        "0 0 * * 1/2",
    ),
    Difference(
        r"^\S+ \S+ (?!\* )\S+ \S+ \S*[#L]",
        "With # or L in day of week croniter wants both days to match; in cron either "
        "does, unless one of the fields begins with *.",
        "0 0 1-7 * 5#1",
    ),
    Difference(
        r"^\S+ \S+ \S+,\*\S* \S+ \S*\b[01]-[67]\b",
        "If day of month has a * that is not in front, croniter reads the range of all "
        "days of the week, 0-6, as *, so that only day of month counts.",
        "0 6 12,*/27 * 0-6",
    ),
]


# --- random texts


def random_item(chance: Random, low: int, high: int, names: tuple[str, ...]) -> str:
    def shown(number: int) -> str:
        is_named = number - low < len(names) and chance.random() < 0.3
        return names[number - low] if is_named else str(number)

    first, last = sorted((chance.randint(low, high), chance.randint(low, high)))
    return chance.choice(
        [
            shown(first),
            shown(last),
            f"{shown(first)}-{shown(last)}",
            f"*/{chance.randint(1, high - low)}",
            f"{first}-{last}/{chance.randint(1, last - first + 1)}",
            f"{first}/{chance.randint(1, high - first + 1)}",
        ]
    )


def random_field(
    chance: Random, low: int, high: int, stars: float, names: tuple[str, ...] = ()
) -> str:
    if chance.random() < stars:
        return "*"
    count = chance.choice([1, 1, 1, 2, 3])
    return ",".join(random_item(chance, low, high, names) for _ in range(count))


def random_text(chance: Random) -> str:
    minute, hour = random_field(chance, 0, 59, 0.2), random_field(chance, 0, 23, 0.3)
    day, month = (
        random_field(chance, 1, 31, 0.6),
        random_field(chance, 1, 12, 0.7, MONTHS),
    )
    weekday = random_field(chance, 0, 7, 0.6, WEEKDAYS)
    special = chance.random()
    if special < 0.08:
        day = "L"
    elif special < 0.20:
        weekday = f"{chance.randint(0, 6)}#{chance.randint(1, 5)}"
    elif special < 0.28:
        weekday = f"{chance.randint(0, 6)}L"
    return f"{minute} {hour} {day} {month} {weekday}"


# --- both libraries


def our_runs(text: str, after: datetime, count: int) -> list[str]:
    cron = Cron(text, tz=str(after.tzinfo))
    return [str(run.at) for run in cron.preview(count, after)]


def their_runs(text: str, after: datetime, count: int) -> list[datetime]:
    spelled = re.sub(r"(\d)L$", r"L\1", text)  # 5L is L5 in croniter
    # The bug is to want both days if a field begins with *; Debian's cron has it too.
    runs = croniter(spelled, after, implement_cron_bug=True)
    return [runs.get_next(datetime) for _ in range(count)]


def explained(text: str) -> bool:
    numbers = re.sub(r"[A-Z]{3}", lambda name: NUMBERS[name[0]], text)
    return any(re.search(known.pattern, numbers) for known in DIFFERENCES)


def test_random_texts_run_at_the_same_times() -> None:
    chance = Random(20260101)  # noqa: S311 - seeded
    compared, unexplained = 0, list[str]()
    for _ in range(TEXTS):
        text = random_text(chance)
        after = START + timedelta(seconds=chance.randrange(TEN_YEARS))
        if explained(text):
            continue
        compared += 1
        ours = our_runs(text, after.astimezone(ZoneInfo("UTC")), RUNS)
        theirs = [str(run) for run in their_runs(text, after, RUNS)]
        if ours != theirs:
            unexplained.append(f"{text} after {after}: {ours}, croniter {theirs}")
    assert not unexplained, "\n".join(unexplained)
    assert compared > TEXTS * 0.6


@pytest.mark.parametrize("known", DIFFERENCES, ids=lambda known: known.example)
def test_a_known_difference_is_one(known: Difference) -> None:
    assert re.search(known.pattern, known.example)
    start = START.astimezone(ZoneInfo("UTC"))
    theirs = [str(run) for run in their_runs(known.example, START, 20)]
    assert our_runs(known.example, start, 20) != theirs


# --- changes of the clock


def is_second_pass(run: datetime) -> bool:
    """Whether the run is in an hour that occurs for the second time."""
    return run.replace(fold=0).utcoffset() != run.utcoffset()


def follows_gap(run: datetime) -> bool:
    """Whether the run is in the first minute after clocks went forward."""
    before = (run.astimezone(UTC) - timedelta(minutes=1)).astimezone(run.tzinfo)
    return run.replace(tzinfo=None) - before.replace(tzinfo=None) > timedelta(minutes=1)


def why_by_clock(text: str, run: datetime, *, is_ours: bool) -> str | None:
    """Return why only one of the two has this run of a text, or None."""
    minute, hour, *_ = text.split()
    is_fixed = not minute.startswith("*") and not hour.startswith("*")
    if is_fixed and is_second_pass(run) and not is_ours:
        return "croniter repeats fixed times when clocks go back"
    if not is_fixed and follows_gap(run) and not is_ours:
        return "croniter moves a run that does not exist, also of a text with *"
    if is_fixed and follows_gap(run) and is_ours:
        hours = {run.hour for run in their_runs(f"0 {hour} * * *", START, 24)}
        return "a list of all hours is * in croniter" if len(hours) == 24 else None
    return None


def clock_differences(text: str, after: datetime) -> dict[str, str | None]:
    """The runs that only one of the two has, with the reason."""
    theirs = their_runs(text, after, 25)
    ours = [run.at for run in Cron(text, tz=str(after.tzinfo)).preview(25, after)]
    end = min(ours[-1].timestamp(), theirs[-1].timestamp())
    only = {run.timestamp(): (run, True) for run in ours}
    for run in theirs:
        if only.pop(run.timestamp(), None) is None:
            only[run.timestamp()] = run, False
    return {
        f"{text}: {run} {'here' if is_ours else 'croniter'}": why_by_clock(
            text, run, is_ours=is_ours
        )
        for at, (run, is_ours) in only.items()
        if at <= end
    }


def test_when_clocks_change_only_known_runs_differ() -> None:
    chance = Random(20261025)  # noqa: S311 - seeded
    found: dict[str, str | None] = {}
    for zone, day in (
        ("Europe/Paris", "2026-03-28 22:00"),
        ("Europe/Paris", "2026-10-24 22:00"),
        ("America/New_York", "2027-03-13 22:00"),
        ("America/New_York", "2027-11-06 22:00"),
    ):
        after = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
        for _ in range(TIMES // 4):
            minute = random_field(chance, 0, 59, 0.1)
            text = f"{minute} {random_field(chance, 0, 4, 0.2)} * * *"
            if not explained(text):
                found |= clock_differences(text, after)
    unexplained = [run for run, reason in found.items() if reason is None]
    assert not unexplained, "\n".join(unexplained)
    assert len(set(found.values())) == 3


def test_croniter_reads_what_is_refused_here() -> None:
    """These texts run in croniter, at times that their author hardly wants."""
    for text in ("*/90 * * * *", "0 22-2 * * *", "0 0 * * FRI-MON", "0 0 30 2 *"):
        assert croniter.is_valid(text)
        with pytest.raises(InvalidSchedule):
            Cron(text)
