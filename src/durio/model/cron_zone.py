"""Cron texts in a time zone: from times on the wall to seconds of real time, and back.

Real time is in seconds since 1970 in UTC. Wall time is what a local clock shows, also in
seconds since 1970. When clocks go forward some wall times do not exist, when they go
back some occur twice. The rules are those of Debian's cron:

*Fixed times* (neither minute nor hour begins with `*`): each matching wall time runs
once, when the clock first shows it or a later time. So 02:30 runs at 03:00 on the day on
which clocks go from 02:00 to 03:00, and once on the day on which 02:30 occurs twice.

*All others* follow real time: a run is at each second of real time whose wall time
matches. A wall time that does not exist has no run, one that occurs twice has two.

cronsim has the same rules, but only dates are taken from it. Given a zone it loses runs
where clocks change by half an hour or at midnight, and begins at the wrong place in an
hour that occurs for the second time.

Every method may raise OverflowError: beyond the calendar, which has the years 1 to 9999.
"""

import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from durio.model.cron_text import DAY_SECONDS, WALL_EPOCH, CronText
from durio.model.errors import InvalidSchedule
from durio.model.names import did_you_mean

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONE_SECOND = timedelta(seconds=1)
LOCAL_NAMES = {"local", "localtime", "system"}
LEAP_SECONDS = "right/"  # zones of some machines whose clocks count leap seconds


def zone_of(tz: str | ZoneInfo) -> ZoneInfo:
    """Return the zone of a name such as Europe/Paris, or of a ZoneInfo with a key."""
    key = tz.key if isinstance(tz, ZoneInfo) else tz
    if not isinstance(key, str):
        raise InvalidSchedule(
            f"tz cannot be {tz!r}: only the name of a zone can be stored",
            cure="Give a name such as tz='Europe/Paris' or tz='UTC'.",
        )
    if key.lower() in LOCAL_NAMES:
        raise InvalidSchedule(
            f"tz cannot be {key!r}: local time differs between machines",
            cure="Give the name of the zone, such as tz='Europe/Paris' or tz='UTC'.",
        )
    if key.startswith(LEAP_SECONDS):
        raise InvalidSchedule(
            f"tz cannot be {key[:80]!r}: its clocks count leap seconds, those of the store "
            "do not",
            cure=f"Leave {LEAP_SECONDS!r} out, such as tz='Europe/Paris'.",
        )
    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError):  # unknown, not a name, a folder of zones
        near = did_you_mean(key[:80], zoneinfo.available_timezones())
        raise InvalidSchedule(
            f"there is no time zone {key[:80]!r}",
            cure=f"Give a name such as tz='Europe/Paris' or tz='UTC'.{near}",
        ) from None


@dataclass(frozen=True, slots=True)
class WallClock:
    """A clock that shows the local time of a zone."""

    zone: ZoneInfo

    def moment(self, instant: int) -> datetime:
        in_utc = WALL_EPOCH + timedelta(seconds=instant)
        return self.zone.fromutc(in_utc.replace(tzinfo=self.zone))

    def wall(self, instant: int) -> int:
        """Return the wall time at a second of real time."""
        return _whole_seconds(self.moment(instant).replace(tzinfo=None) - WALL_EPOCH)

    def offset(self, instant: int) -> int:
        return self.wall(instant) - instant

    def first_instant(self, wall: int) -> int:
        """Return when the clock first shows a wall time or a later one."""
        instant = self._instant(wall, fold=0)
        missing = self.wall(instant) - wall
        if missing == 0:
            return instant
        # A change skips this wall time. Python uses the offset from before the change.
        return self.change(instant - missing, instant)

    def exists(self, wall: int) -> bool:
        return self.wall(self.first_instant(wall)) == wall

    def occurs_twice(self, wall: int) -> bool:
        """Whether clocks go back over a wall time that exists."""
        return self._instant(wall, fold=0) != self._instant(wall, fold=1)

    def change(self, low: int, high: int) -> int:
        """Return the first second after `low` with the offset of `high`."""
        offset = self.offset(high)
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == offset:
                high = middle
            else:
                low = middle
        return high

    def _instant(self, wall: int, *, fold: int) -> int:
        shown = WALL_EPOCH + timedelta(seconds=wall)
        return _whole_seconds(shown.replace(tzinfo=self.zone, fold=fold) - EPOCH)


@dataclass(frozen=True, slots=True)
class ZonedRuns:
    """The runs of a text in a zone, in seconds of real time."""

    text: CronText
    clock: WallClock

    def next(self, after: int) -> int:
        """Return the first run after a second."""
        seconds = self.text.seconds
        minute = self._next_minute(after - seconds[-1])
        return min(minute + second for second in seconds if minute + second > after)

    def prev(self, before: int) -> int:
        """Return the last run before a second."""
        seconds = self.text.seconds
        minute = self._prev_minute(before - seconds[0])
        return max(minute + second for second in seconds if minute + second < before)

    def _next_minute(self, after: int) -> int:
        if not self.text.has_fixed_times:
            return self._next_matching(after)
        wall = self.clock.wall(after)
        # More than one turn only while clocks show an hour for the second time.
        while True:
            wall = self.text.next_wall(wall)
            instant = self.clock.first_instant(wall)
            if instant > after:
                return instant

    def _prev_minute(self, before: int) -> int:
        if not self.text.has_fixed_times:
            return self._prev_matching(before)
        wall = self.clock.wall(before)
        # While clocks show an hour for the second time, all of it has been shown before.
        wall += before - self.clock.first_instant(wall)
        while True:
            wall = self.text.prev_wall(wall)
            instant = self.clock.first_instant(wall)
            if instant < before:
                return instant

    def _next_matching(self, after: int) -> int:
        """Return the first second after `after` whose wall time matches.

        Looks at one day at a time, because clocks go back by less than that: of a wall
        time more than a day ahead, all others up to it are known not to match.
        """
        while True:
            offset = self.clock.offset(after + 1)
            found = self.text.next_wall(after + offset) - offset
            end = min(found, after + DAY_SECONDS)
            if self.clock.offset(end) != offset:
                after = self.clock.change(after + 1, end) - 1
            elif end == found:
                return found
            else:
                after = max(end, found - DAY_SECONDS)

    def _prev_matching(self, before: int) -> int:
        """Return the last second before `before` whose wall time matches."""
        while True:
            offset = self.clock.offset(before - 1)
            found = self.text.prev_wall(before + offset) - offset
            start = max(found, before - DAY_SECONDS)
            if self.clock.offset(start) != offset:
                before = self.clock.change(start, before - 1)
            elif start == found:
                return found
            else:
                before = min(start, found + DAY_SECONDS)

    def note(self, previous: int, run: int) -> str | None:
        """Say what a change of the clock does to a run, given the run before it."""
        wall = _minute(self.clock.wall(run))
        first = self.text.next_wall(_minute(self.clock.wall(previous)))
        if first < wall and not self.clock.exists(first):
            return self._gap_note(first, self.clock.wall(run))
        if not self.clock.occurs_twice(wall):
            return None
        times = "runs once" if self.text.has_fixed_times else "runs both times"
        return f"clocks go back: {_shown(wall)} occurs twice, {times}"

    def _gap_note(self, first: int, wall: int) -> str:
        last = self.text.prev_wall(_minute(wall))
        missing = f"{_shown(first)} does not exist"
        if last > first:
            missing = f"{_shown(first)} to {_shown(last)} do not exist"
        if not self.text.has_fixed_times:
            return f"clocks go forward: {missing}, no run then"
        once = "runs" if last == first else "one run"
        return f"clocks go forward: {missing}, {once} at {_shown(wall)}"


def _whole_seconds(span: timedelta) -> int:
    return span.days * DAY_SECONDS + span.seconds  # a third of the time of `//`


def _minute(wall: int) -> int:
    return wall - wall % 60


def _shown(wall: int) -> str:
    shown = WALL_EPOCH + timedelta(seconds=wall)
    return f"{shown:%H:%M:%S}" if shown.second else f"{shown:%H:%M}"
