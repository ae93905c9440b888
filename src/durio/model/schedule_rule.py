"""When a schedule is due: by cron text, at an interval, or once.

Times are seconds since 1970. Only the dates in `exclude` and the fields of a cron text
depend on the time zone.
"""

import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec

from durio.model.cron import Cron, CronRun
from durio.model.cron_zone import zone_of
from durio.model.errors import InvalidSchedule
from durio.model.quantities import format_duration

INTERVAL_SECONDS_MIN = 0.1
EXCLUDED_MAX = 366  # excluded dates of a schedule
LAST_SECONDS = 253_370_764_800.0  # the year 9999: there are no later ticks
MISSED_SECONDS = 60.0  # a later tick is missed, if it is later than one interval too
MISSED_SECONDS_MAX = 86400.0  # also if the interval is longer
# How far a rule is examined for its shortest interval, at about 25 us for each tick.
AHEAD_SECONDS = 62 * 86400.0
INTERVALS_MAX = 300

Interval = Annotated[float, msgspec.Meta(ge=INTERVAL_SECONDS_MIN)]


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The times of a schedule; it has one of `cron`, `every` and `at`."""

    cron: str | None = None
    every: Interval | None = None  # seconds
    at: float | None = None  # once, at this time
    tz: str = "UTC"
    fixed_delay: bool = False  # `every` counts from the end of the run before
    start: float | None = None  # no tick before this time
    end: float | None = None  # no tick after this time
    exclude: tuple[str, ...] = ()  # dates without ticks, such as `2030-12-25`
    # Ticks of `every` are at `anchor` plus a multiple of the interval.
    anchor: float = 0.0

    def after(self, moment: float) -> float | None:
        """Return the first tick after this time; None if there is none."""
        if self.start is not None:
            moment = max(moment, math.nextafter(self.start, -math.inf))
        tick = self._next(moment)
        while tick is not None and self._is_excluded(tick):
            tick = self._next(math.nextafter(self._day_after(tick), -math.inf))
        return None if tick is None or self._is_over(tick) else tick

    def latest(self, until: float, after: float) -> float | None:
        """Return the last tick that is later than `after`, and not later than `until`."""
        if self.end is not None:
            until = min(until, self.end)
        tick = self._previous(math.nextafter(until, math.inf))
        while tick is not None and self._is_excluded(tick):
            tick = self._previous(self._day_of(tick))
        first = -math.inf if self.start is None else self.start
        is_found = tick is not None and tick > after and tick >= first
        return tick if is_found else None

    def after_end(self, ended_at: float) -> float | None:
        """Return the tick of a fixed delay, after a run that ended at this time."""
        tick = ended_at + (self.every or 0.0)
        if self.start is not None:
            tick = max(tick, self.start)
        while self._is_excluded(tick):
            tick = self._day_after(tick)
        return None if self._is_over(tick) else tick

    def interval_seconds(self, moment: float) -> float:
        """Return the time between two ticks, about this time; infinite for one tick."""
        return next(self._intervals(moment), math.inf)

    def interval_up_to(self, seconds: float, moment: float) -> float | None:
        """Return the first interval that is not longer; None: the next ones are longer.

        Looks at least one interval, and at most about two months, ahead.
        """
        ahead = 0.0
        for interval in islice(self._intervals(moment), INTERVALS_MAX):
            if interval <= seconds:
                return interval
            ahead += interval
            if ahead > AHEAD_SECONDS:
                break
        return None

    def _intervals(self, moment: float) -> Iterator[float]:
        """Yield the times between the next ticks."""
        if self.every is not None:
            yield self.every
            return
        tick = self.after(moment)
        while tick is not None and (following := self.after(tick)) is not None:
            yield following - tick
            tick = following

    def missed_seconds(self, due_at: float) -> float:
        """Return after which time a tick that was not handled counts as missed."""
        interval = self.interval_seconds(due_at - 1.0)
        if math.isinf(interval):  # it has only this tick
            return MISSED_SECONDS
        return max(MISSED_SECONDS, min(interval, MISSED_SECONDS_MAX))

    def check(self) -> None:
        """Raise InvalidSchedule if this process cannot compute the ticks."""
        rules = [name for name in (self.cron, self.every, self.at) if name is not None]
        if len(rules) != 1:
            raise InvalidSchedule(
                f"it has {len(rules)} of cron, every and at", cure="Give it one."
            )
        zone_of(self.tz)
        if self.cron is not None:
            cron_of(self.cron, self.tz)

    def describe(self) -> str:
        """Return the rule in words."""
        if self.cron is not None:
            text = cron_of(self.cron, self.tz).explain()
        elif self.every is not None:
            after = " after the end of the run before" if self.fixed_delay else ""
            text = f"Every {format_duration(self.every)}{after}"
        else:
            text = f"Once, at {local(self.at or 0.0, self.tz).isoformat(' ')}"
        if self.exclude:
            text += f", except on {', '.join(self.exclude)}"
        return text

    def preview(self, moment: float, count: int) -> list[CronRun]:
        """Return the next ticks after this time, with what daylight saving does to them."""
        found: list[CronRun] = []
        while len(found) < count and (tick := self.after(moment)) is not None:
            note = None
            if self.cron is not None:
                # From the tick before, or from just before this one if it is excluded.
                cron = cron_of(self.cron, self.tz)
                known = cron.next_seconds(moment) == tick
                since = moment if known else tick - 1.0
                note = cron.preview(1, local(since, self.tz))[0].note
            found.append(CronRun(local(tick, self.tz), note))
            moment = tick
        return found

    # --- parts

    def _next(self, moment: float) -> float | None:
        if self.at is not None:
            return self.at if self.at > moment else None
        if self.every is not None:
            ticks = self._multiples(math.floor((moment - self.anchor) / self.every), 1)
            return next((tick for tick in ticks if tick > moment), None)
        return cron_of(self.cron or "", self.tz).next_seconds(moment)

    def _previous(self, moment: float) -> float | None:
        if self.at is not None:
            return self.at if self.at < moment else None
        if self.every is not None:
            ticks = self._multiples(math.ceil((moment - self.anchor) / self.every), -1)
            return next((tick for tick in ticks if tick < moment), None)
        return cron_of(self.cron or "", self.tz).prev_seconds(moment)

    def _multiples(self, count: int, step: int) -> list[float]:
        """Return ticks of `every` from this one on; a quotient may be one off.

        A tick is the same number from both sides: its job is known by that number.
        """
        every = self.every or 0.0
        return [self.anchor + (count + n * step) * every for n in range(3)]

    def _is_over(self, tick: float) -> bool:
        return tick > (LAST_SECONDS if self.end is None else self.end)

    def _is_excluded(self, tick: float) -> bool:
        return bool(self.exclude) and self._date(tick).isoformat() in self.exclude

    def _date(self, tick: float) -> date:
        return local(tick, self.tz).date()

    def _day_of(self, tick: float) -> float:
        return midnight(self._date(tick), self.tz)

    def _day_after(self, tick: float) -> float:
        return midnight(self._date(tick) + timedelta(days=1), self.tz)


def local(moment: float, tz: str) -> datetime:
    """Return a time as a datetime in this zone."""
    return datetime.fromtimestamp(moment, ZoneInfo(tz))


def midnight(day: date, tz: str) -> float:
    """Return the begin of a day in this zone."""
    return datetime.combine(day, time(), ZoneInfo(tz)).timestamp()


@lru_cache(1024)
def cron_of(text: str, tz: str) -> Cron:
    return Cron(text, tz=tz)
