"""Cron schedules: the next run, the one before, and what a text means in words."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Any, cast
from zoneinfo import ZoneInfo

from cronsim import CronSim

from durio.model.cron_text import WALL_EPOCH, read_cron_text
from durio.model.cron_zone import EPOCH, ONE_SECOND, WallClock, ZonedRuns, zone_of
from durio.model.errors import InvalidSchedule

PREVIEW_MAX = 1000
FieldValue = int | str | Iterable[int]

# The keywords in the order of a text, with their rank by size.
RANKS = {"second": 0, "minute": 1, "hour": 2, "day": 3, "month": 4, "weekday": 3}
LOWEST = {"minute": "0", "hour": "0", "day": "1"}
VALUES_MAX = 60
WRONG_ORDINAL = re.compile(r"\b([2-5])([123])th\b")


@dataclass(frozen=True, slots=True)
class CronRun:
    """One run of a preview."""

    __module__ = "durio.schedules"

    at: datetime  # in the zone of the schedule
    note: str | None = None  # what a change of the clock does to it


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cron:
    """A cron schedule: when a job runs, by the clock of a time zone.

    The text has five fields (minute, hour, day of month, month, day of week), or six
    with the second in front:

        weekdays = Cron("0 9 * * MON-FRI", tz="Europe/Paris")
        print(weekdays.explain())

    A field is `*`, a value, a range `1-5`, a step `*/5` or `10-30/5`, or a list of them.
    Months and days of the week have names (`JAN`, `MON`); 0 and 7 are Sunday. Day of
    month also takes `L`, the last day, and `LW`, the last weekday of the month; day of
    week takes `MON#1`, the first Monday, and `5L`, the last Friday. `@hourly`, `@daily`,
    `@weekly`, `@monthly` and `@yearly` are short for a text. If neither day of month nor
    day of week begins with `*`, a day matches that fits one of them, else both.

    By keywords, a value is a number, a text or a list of numbers: `Cron(hour=3)` is
    03:00 every day. A field that is left out is its lowest value if it is smaller than
    all given ones, otherwise `*`.

    A job at fixed times runs exactly once on the days on which clocks change: 02:30
    becomes 03:00 if it does not exist. If minute or hour begins with `*`, the schedule
    follows real time. Seconds do not change that.

    A Cron cannot be changed, and two are equal if their `text` and `tz` are. The text is
    kept in capitals with single spaces.
    """

    __module__ = "durio"

    text: str  # in capitals, with single spaces
    tz: str  # name of the time zone
    _runs: ZonedRuns = field(compare=False)

    def __init__(  # noqa: PLR0913 - the fields of a text, all keywords
        self,
        text: str | None = None,
        *,
        second: FieldValue | None = None,
        minute: FieldValue | None = None,
        hour: FieldValue | None = None,
        day: FieldValue | None = None,
        month: FieldValue | None = None,
        weekday: FieldValue | None = None,
        tz: str | ZoneInfo = "UTC",
    ) -> None:
        by_keyword = {
            "second": second,
            "minute": minute,
            "hour": hour,
            "day": day,
            "month": month,
            "weekday": weekday,
        }
        given = {key: value for key, value in by_keyword.items() if value is not None}
        if (text is None) == (not given):
            takes = "takes a text or fields, not both" if given else "needs a text"
            raise InvalidSchedule(
                f"a Cron {takes}", cure="Write Cron('0 3 * * *') or Cron(hour=3)."
            )
        read = read_cron_text(_keyword_text(given) if text is None else text)
        zone = zone_of(tz)
        object.__setattr__(self, "text", read.text)
        object.__setattr__(self, "tz", zone.key)
        object.__setattr__(self, "_runs", ZonedRuns(read, WallClock(zone)))

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, tz={self.tz!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.text, self.tz)

    def next(self, after: datetime) -> datetime:
        """Return the first run after a time, in the zone of the schedule."""
        found = self.next_seconds(_since_epoch(after) // ONE_SECOND)
        return self._moment(found, "after", after)

    def prev(self, before: datetime) -> datetime:
        """Return the last run before a time, in the zone of the schedule."""
        found = self.prev_seconds(-(-_since_epoch(before) // ONE_SECOND))
        return self._moment(found, "before", before)

    def next_seconds(self, after: float) -> float | None:
        """Return the first run after a time, both in seconds since 1970, or None."""
        try:
            return float(self._runs.next(math.floor(after)))
        except OverflowError:
            return None

    def prev_seconds(self, before: float) -> float | None:
        """Return the last run before a time, both in seconds since 1970, or None."""
        try:
            return float(self._runs.prev(math.ceil(before)))
        except OverflowError:
            return None

    def interval_seconds(self, after: float) -> float:
        """Return the time between the next two runs; infinite if there are not two."""
        first = self.next_seconds(after)
        second = None if first is None else self.next_seconds(first)
        return math.inf if first is None or second is None else second - first

    def explain(self) -> str:
        """Return the schedule as a sentence, with its zone."""
        sentence = CronSim(self.text, WALL_EPOCH).explain()
        # cronsim says 21th, 22th and 23th.
        return f"{WRONG_ORDINAL.sub(_ordinal, sentence)} ({self.tz})"

    def preview(self, count: int, after: datetime) -> list[CronRun]:
        """Return the next runs, each with a note if a change of the clock moves it."""
        if type(count) is not int or not 1 <= count <= PREVIEW_MAX:
            raise InvalidSchedule(
                f"a preview cannot have {count!r} runs",
                cure=f"Give a number from 1 to {PREVIEW_MAX}.",
            )
        runs: list[CronRun] = []
        last = _since_epoch(after) // ONE_SECOND
        while len(runs) < count and (found := self.next_seconds(last)) is not None:
            note = self._runs.note(last, int(found))
            last = int(found)
            runs.append(CronRun(self._runs.clock.moment(last), note))
        return runs

    def _moment(self, found: float | None, side: str, limit: datetime) -> datetime:
        if found is None:
            raise InvalidSchedule(
                f"{self!r} has no run {side} {limit.isoformat()}",
                cure="The calendar has the years 1 to 9999: give a time within them.",
            )
        return self._runs.clock.moment(int(found))


def _restore(text: str, tz: str) -> Cron:
    return Cron(text, tz=tz)


def _since_epoch(moment: datetime) -> timedelta:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidSchedule(
            f"{moment!r} is not a time with a zone",
            cure="Give an aware datetime, such as datetime.now(UTC).",
        )
    return moment - EPOCH


def _ordinal(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{('st', 'nd', 'rd')[int(found[2]) - 1]}"


def _keyword_text(given: Mapping[str, FieldValue]) -> str:
    """Return the text of the given fields; without a second it has five."""
    values = {name: _value_text(name, value) for name, value in given.items()}
    smallest = min(RANKS[name] for name in values)
    for name, rank in RANKS.items():
        if name != "second":
            lowest = LOWEST.get(name, "*") if rank < smallest else "*"
            values.setdefault(name, lowest)
    return " ".join(values[name] for name in RANKS if name in values)


def _value_text(name: str, value: object) -> str:
    shown = repr(value)
    if isinstance(value, str):
        if len(value.split()) == 1:
            return value.strip()
    elif isinstance(value, int):
        if not isinstance(value, bool):
            return str(value)
    elif isinstance(value, Iterable):
        numbers = list(islice(cast("Iterable[int]", value), VALUES_MAX + 1))
        are_whole = all(type(number) is int for number in numbers)
        if 0 < len(numbers) <= VALUES_MAX and are_whole:
            return _numbers_text({*numbers})
    raise InvalidSchedule(
        f"{name} cannot be {shown[:80]} in a Cron",
        cure="Give a number, a text such as '*/5' or 'MON-FRI', or a list of numbers.",
        field=name,
        value=value,
    )


def _numbers_text(numbers: set[int]) -> str:
    """Return a list of numbers, with ranges: a text has at most 256 characters."""
    ranges: list[str] = []
    # In a range, a number and its place in the list grow together.
    for _, pairs in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in pairs]
        ends = dict.fromkeys((members[0], members[-1]))
        ranges.append("-".join(map(str, ends)))
    return ",".join(ranges)
