"""Cron runs by a walk through real time, which shares no code with the package.

It asks at every minute what a clock on the wall shows.
"""

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
MONTHS = {name: n for n, name in enumerate(calendar.month_abbr) if name}
DAYS = {"Sun": 0, "Mon": 1, "Tue": 2, "Wed": 3, "Thu": 4, "Fri": 5, "Sat": 6}
NAMES = {name.upper(): str(n) for name, n in (MONTHS | DAYS).items()}


@cache
def values(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for item in field.split(","):
        body, _, step = item.partition("/")
        start, _, end = ("*" if body == "*" else body).partition("-")
        first = low if start == "*" else int(NAMES.get(start, start))
        last = int(NAMES.get(end, end)) if end else first
        last = high if start == "*" or (step and not end) else last
        found |= set(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def is_weekday(month: date, day: int) -> bool:
    return month.replace(day=day).isoweekday() <= 5


@cache
def day_matches(fields: tuple[str, ...], day: date) -> bool:
    days, months, weekdays = fields
    if day.month not in values(months, 1, 12):
        return False
    length = calendar.monthrange(day.year, day.month)[1]
    if days == "L":
        by_day = day.day == length
    elif days == "LW":
        weekdays_left = [n for n in range(day.day, length + 1) if is_weekday(day, n)]
        by_day = weekdays_left == [day.day]
    else:
        by_day = day.day in values(days, 1, 31)
    number = day.isoweekday() % 7
    if weekdays.endswith("L"):
        by_weekday = number == int(weekdays[0]) % 7 and day.day + 7 > length
    elif "#" in weekdays:
        name, nth = weekdays.split("#")
        by_weekday = number == int(NAMES[name]) and (day.day - 1) // 7 + 1 == int(nth)
    else:
        by_weekday = number in {n % 7 for n in values(weekdays, 0, 6)}
    both = days.startswith("*") or weekdays.startswith("*")
    return by_day and by_weekday if both else by_day or by_weekday


@cache
def is_near(fields: tuple[str, ...], day: date) -> bool:
    return any(day_matches(fields, day + timedelta(days=n)) for n in (-1, 0, 1))


def walk(text: str, zone: str, after: datetime) -> Iterator[datetime]:
    """Go through real time by quarters of an hour: clocks change only between them.

    A text with fixed times runs in a minute if one of the wall times that the clock
    reaches in it for the first time matches; all others run if the shown one does.
    """
    fields = text.split()
    second, minute, hour, *rest = fields if len(fields) == 6 else ["0", *fields]
    seconds, minutes = sorted(values(second, 0, 59)), values(minute, 0, 59)
    hours, dates = values(hour, 0, 23), tuple(rest)
    is_fixed = not minute.startswith("*") and not hour.startswith("*")

    def matches(wall: datetime) -> bool:
        is_time = wall.minute in minutes and wall.hour in hours
        return is_time and day_matches(dates, wall.date())

    start = after.astimezone(UTC).replace(second=0)
    quarter = start - timedelta(days=1, minutes=start.minute % 15)
    reached = datetime.min  # noqa: DTZ901 - wall times have no zone
    while True:
        wall = quarter.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        if not is_near(dates, wall.date()):
            quarter += timedelta(hours=23)
            reached = datetime.min  # noqa: DTZ901 - as above
            continue
        if wall.hour not in hours and reached + MINUTE >= wall:
            quarter += timedelta(minutes=15)
            reached = max(reached, wall + 14 * MINUTE)
            continue
        for n in range(15):
            shown = wall + n * MINUTE
            due = [shown]
            if is_fixed and reached != datetime.min:  # noqa: DTZ901 - as above
                new = max(0, (shown - reached) // MINUTE)
                due = [reached + k * MINUTE for k in range(1, new + 1)]
            if any(map(matches, due)):
                run = quarter + n * MINUTE
                times = [run + timedelta(seconds=s) for s in seconds]
                yield from (time for time in times if time > after.astimezone(UTC))
            reached = max(reached, shown)
        quarter += timedelta(minutes=15)
