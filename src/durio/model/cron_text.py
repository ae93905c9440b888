"""Cron texts: each field is checked here, dates are found by cronsim.

cronsim says only "Bad minute" and accepts a few texts that are surely wrong (`L/2`,
`5,*`, `*/90`). So every item is checked before cronsim reads it, and the error names the
field. A text is kept in one form: capitals, single spaces, `@daily` written out.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import product
from typing import NamedTuple, NoReturn

from cronsim import CronSim, CronSimError

from durio.model.errors import InvalidSchedule
from durio.model.names import did_you_mean

CHARACTERS_MAX = 256
DAY_SECONDS = 86400
WALL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a clock on a wall has no zone
ONE_DAY = timedelta(days=1)
FIVE_FIELDS = 5
SIX_FIELDS = 6
NTH_MAX = 5
YEAR_2000 = (datetime(2000, 1, 1) - WALL_EPOCH).days  # noqa: DTZ001 - as above


class FieldKind(NamedTuple):
    """One of the six fields: its name in messages, its range, the names of its values."""

    name: str
    low: int
    high: int
    unit: str = ""  # of `every=`
    names: tuple[str, ...] = ()


DAY_FIELD = FieldKind("day of month", 1, 31, "d")
WEEKDAY_FIELD = FieldKind(
    "day of week", 0, 7, names=("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
)
MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
FIELD_KINDS = (
    FieldKind("second", 0, 59, "s"),
    FieldKind("minute", 0, 59, "m"),
    FieldKind("hour", 0, 23, "h"),
    DAY_FIELD,
    FieldKind("month", 1, 12, names=tuple(MONTHS.split())),
    WEEKDAY_FIELD,
)
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Of texts from elsewhere: field (None: any), sign, cure.
HINTS = (
    (None, "?", "Write '*', and days of the week by name: in Quartz 1 is Sunday."),
    (DAY_FIELD, "W", "W, the nearest weekday, is not supported; LW, the last one, is."),
    (DAY_FIELD, "L", "L is the last day of a month; it takes no step and no distance."),
    (WEEKDAY_FIELD, "#", "Write MON#2 for the second Monday of the month."),
    (WEEKDAY_FIELD, "L", "Write 5L for the last Friday of the month."),
)
RANGE = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", re.ASCII)
NTH = re.compile(r"(\w+)#(\d+)", re.ASCII)
LAST = re.compile(r"(\w+)L", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class CronText:
    """A text that was read: the times of a day, and the dates by cronsim.

    Wall time is what a clock on the wall shows, in seconds since 1970, without a zone.
    """

    text: str
    seconds: tuple[int, ...]
    day_minutes: "array[int]"  # the minutes of a day with a run, ascending
    # Neither minute nor hour begins with `*`: a change of the clock loses or repeats none.
    has_fixed_times: bool
    dates: CronSim
    dates_back: CronSim

    def next_wall(self, after: int) -> int:
        """Return the first matching minute after a wall time; OverflowError: none."""
        day, second = divmod(after, DAY_SECONDS)
        index = bisect_right(self.day_minutes, second // 60)
        if index == len(self.day_minutes):
            day, index = day + 1, 0
        found = self.date_from(day)
        minute = self.day_minutes[index if found == day else 0]
        return found * DAY_SECONDS + minute * 60

    def prev_wall(self, before: int) -> int:
        """Return the last matching minute before a wall time; OverflowError: none."""
        day, second = divmod(before, DAY_SECONDS)
        index = bisect_left(self.day_minutes, -(-second // 60)) - 1
        if index < 0:
            day -= 1
        found = self.date_until(day)
        minute = self.day_minutes[index if found == day else -1]
        return found * DAY_SECONDS + minute * 60

    def date_from(self, day: int) -> int:
        """Return the first matching day, counted from 1970, that is not before `day`."""
        # cronsim looks strictly after: begin one second before midnight.
        start = WALL_EPOCH + timedelta(days=day, seconds=-1)
        return _next_date(self.dates, start)

    def date_until(self, day: int) -> int:
        """Return the last matching day, counted from 1970, that is not after `day`."""
        start = WALL_EPOCH + timedelta(days=day, hours=23, minutes=59, seconds=1)
        return _next_date(self.dates_back, start)


def _next_date(dates: CronSim, start: datetime) -> int:
    dates = copy(dates)  # threads share the original
    dates.dt = start
    found = next(dates, None)
    if found is None:
        raise OverflowError("no matching date within 50 years")
    return (found - WALL_EPOCH) // ONE_DAY


def read_cron_text(text: str) -> CronText:
    """Check a text and return it as read; InvalidSchedule names the wrong field."""
    if not isinstance(text, str):
        raise InvalidSchedule(
            f"a cron text must be str, not {type(text).__name__}",
            cure="Write it as in Cron('0 9 * * MON-FRI').",
        )
    if len(text) > CHARACTERS_MAX:
        raise InvalidSchedule(
            f"a cron text of {len(text)} characters: at most {CHARACTERS_MAX}",
            cure="Use ranges and steps such as 0-30/5, or several schedules.",
        )
    words = text.split()
    if words and words[0].startswith("@"):
        words = _expand(" ".join(words)).split()
    return _read(" ".join(words))


def _expand(text: str) -> str:
    name, _, rest = text.lower().partition(" ")
    if name in ALIASES and not rest:
        return ALIASES[name]
    cure = f"Known are {', '.join(ALIASES)}.{did_you_mean(text.lower(), ALIASES)}"
    if name == "@every":
        duration = rest or "5m"
        cure = f"An interval is not a cron text: use every={duration!r} instead."
    elif name == "@reboot":
        cure = "No schedule runs at a start: enqueue the job where your program starts."
    raise InvalidSchedule(f"{text!r} is not a cron text", cure=cure)


@lru_cache(maxsize=1024)
def _read(text: str) -> CronText:
    parts = text.split()
    if parts and "=" in parts[0]:
        raise InvalidSchedule(
            f"cron text {text!r} begins with a setting, {parts[0]!r}",
            cure="Give the time zone as Cron('0 9 * * *', tz='Europe/Paris').",
        )
    if len(parts) not in {FIVE_FIELDS, SIX_FIELDS}:
        raise _wrong_count(text, len(parts))
    kinds = FIELD_KINDS[-len(parts) :]
    checked = [
        FieldCheck(text, number, kind).field(part)
        for number, (kind, part) in enumerate(zip(kinds, parts, strict=True), 1)
    ]
    return _compile(" ".join(checked), checked[-FIVE_FIELDS:])


def _wrong_count(text: str, count: int) -> InvalidSchedule:
    number = f"{count} fields" if count != 1 else "1 field"
    year = " There is no field for the year." if count > SIX_FIELDS else ""
    return InvalidSchedule(
        f"cron text {text!r} has {number}, not 5 or 6",
        cure="Write: minute, hour, day of month, month, day of week, as in "
        f"'0 9 * * MON-FRI'; a sixth field in front of them is the second.{year}",
    )


def _compile(text: str, five: list[str]) -> CronText:
    minute, hour, day, month, weekday = five
    try:
        times = CronSim(text, WALL_EPOCH)
        on_dates = f"{day} {month} {weekday}"
        minutes = product(sorted(times.hours), sorted(times.minutes))
        read = CronText(
            text=text,
            seconds=tuple(sorted(times.seconds)),
            day_minutes=array("H", (h * 60 + m for h, m in minutes)),
            has_fixed_times=not minute.startswith("*") and not hour.startswith("*"),
            dates=CronSim(f"0 0 {on_dates}", WALL_EPOCH),
            dates_back=CronSim(f"59 23 {on_dates}", WALL_EPOCH, reverse=True),
        )
        read.date_from(YEAR_2000)
    except (CronSimError, OverflowError):  # the fields are right: their dates are not
        number = len(text.split()) - 2
        raise InvalidSchedule(
            f"cron text {text!r}: field {number} (day of month): {day!r} "
            f"never occurs with month {month!r} and day of week {weekday!r}",
            cure="Change the day or the month. L is the last day of every month.",
            field=DAY_FIELD.name,
            value=day,
        ) from None
    return read


@dataclass(frozen=True, slots=True)
class FieldCheck:
    """The check of one field of a text: returns it in capitals, or raises."""

    text: str
    number: int
    kind: FieldKind

    def field(self, field: str) -> str:
        if not field.isascii():  # capitals could turn it into ASCII
            self.refuse(field, "cannot be read", self.hint(""))
        items = field.upper().split(",")
        if "" in items:
            self.refuse(field, "has an empty item", "Write a value between two commas.")
        if len(items) > 1 and "*" in items:
            self.refuse(field, "lists '*' among others", "'*' alone is every value.")
        return ",".join(self.item(item) for item in items)

    def item(self, item: str) -> str:
        if self.kind is DAY_FIELD and item in {"L", "LW"}:
            return item
        if self.kind is WEEKDAY_FIELD and (nth := NTH.fullmatch(item)):
            self.value(nth[1], item)
            if not 1 <= int(nth[2]) <= NTH_MAX:
                self.refuse(item, "counts beyond the month", "Give #1 to #5.")
            return item
        if self.kind is WEEKDAY_FIELD and (last := LAST.fullmatch(item)):
            return f"{self.value(last[1], item)}L"  # cronsim reads 5L but not FRIL
        return self.range(item)

    def range(self, item: str) -> str:
        found = RANGE.fullmatch(item)
        if found is None:
            self.refuse(item, "cannot be read", self.hint(item))
        start, end, step = found.groups()
        low, high = self.kind.low, self.kind.high
        if start is None and self.kind is WEEKDAY_FIELD:
            high -= 1  # 0 and 7 are one day
        if start is not None:
            low = self.value(start, item)
            high = high if end is None else self.value(end, item)
        if end == "SUN" and low > 0:  # the end of the week
            item, high = item.replace("-SUN", "-7"), 7
        if high < low:
            self.refuse(item, "goes backwards", self.two_ranges(item))
        if step is not None:
            self.step(item, int(step), low, high)
        return item

    def step(self, item: str, step: int, low: int, high: int) -> None:
        if step == 0:
            self.refuse(item, "has the step 0", "A step is at least 1.")
        if step > high - low + 1:
            unit = self.kind.unit
            cure = f"Write {low}" + (f", or use every='{step}{unit}'." if unit else ".")
            problem = f"has a step beyond {low}-{high}: only {low} would match"
            self.refuse(item, problem, cure)

    def value(self, word: str, item: str) -> int:
        if word in self.kind.names:
            return self.kind.low + self.kind.names.index(word)
        if not word.isdigit():
            problem = "is unknown" if word == item else f"has an unknown {word!r}"
            self.refuse(item, problem, self.hint(word))
        low, high = self.kind.low, self.kind.high
        if not low <= int(word) <= high:
            self.refuse(item, f"is outside {low} to {high}", self.hint(""))
        return int(word)

    def two_ranges(self, item: str) -> str:
        """Return the cure of a range that ends before it starts."""
        start, _, end = item.partition("/")[0].partition("-")
        low, high, names = self.kind.low, self.kind.high, self.kind.names
        if start in names and end in names:
            return f"Write {start}-{names[-1]},{names[0]}-{end}."
        if self.kind is WEEKDAY_FIELD:
            high = 6 if start != "7" else 7
        return f"Write {start}-{high},{low}-{end}."

    def hint(self, word: str) -> str:
        for kind, sign, hint in HINTS:
            if sign in word and kind in {self.kind, None}:
                return hint
        low, high, names = self.kind.low, self.kind.high, self.kind.names
        known = f" or {names[0]} to {names[-1]}" if names else ""
        forms = "a list (1,2), a range (1-5) or a step (*/5)"
        return f"Give {low} to {high}{known}, {forms}.{did_you_mean(word, names)}"

    def refuse(self, item: str, problem: str, cure: str) -> NoReturn:
        where = f"field {self.number} ({self.kind.name})"
        raise InvalidSchedule(
            f"cron text {self.text!r}: {where}: {item!r} {problem}",
            cure=cure,
            field=self.kind.name,
            value=item,
        )
