"""When a schedule is due, calculated without the code of the engine.

A rule is an interval from an anchor, or a cron text whose ticks are at multiples of some
seconds. A tick is known by its number, so that two times which differ only by a rounding
error are the same tick.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# More than the rounding error of a time, and less than the shortest interval.
ROUNDING_SECONDS = 1e-4
NONE_LATE_SECONDS = 60.0  # `catchup="none"` runs a tick that is at most this late
CATCHUP_MAX = 100  # the default of `catchup_max`
# Cron texts of the simulator, and the seconds between their ticks.
SECONDS_OF_CRON = {
    "* * * * * *": 1.0,
    **{f"*/{seconds} * * * * *": float(seconds) for seconds in (5, 10, 15, 20, 30)},
    "* * * * *": 60.0,
}


def is_same_time(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < ROUNDING_SECONDS


def are_same_times(some: list[float], others: list[float]) -> bool:
    return len(some) == len(others) and all(map(is_same_time, some, others))


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """The rule and the policy of a schedule, from the body of its record."""

    interval: float
    anchor: float
    end: float
    fixed_delay: bool
    overlap: str
    catchup: str
    catchup_max: int
    mark: int  # the first argument of its jobs: which definition made them
    is_cron: bool

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> "ScheduleRule":
        rule, link = definition["rule"], definition["link"]
        cron = rule.get("cron")
        return cls(
            interval=rule["every"] if cron is None else SECONDS_OF_CRON[cron],
            anchor=rule["anchor"] if cron is None else 0.0,
            end=rule.get("end", math.inf),
            fixed_delay=rule.get("fixed_delay", False),
            overlap=definition.get("overlap", "skip"),
            catchup=definition.get("catchup", "latest"),
            catchup_max=definition.get("catchup_max", CATCHUP_MAX),
            mark=link["args"][0],
            is_cron=cron is not None,
        )

    @property
    def is_watched(self) -> bool:
        """Whether a scheduler looks for the end of each run."""
        return self.overlap != "allow" or self.fixed_delay

    def number(self, due: float) -> int | None:
        """Return which tick this is; None: it is no tick of this rule."""
        number = round((due - self.anchor) / self.interval)
        is_tick = is_same_time(self.time(number), due)
        return number if is_tick and due <= self.end + ROUNDING_SECONDS else None

    def time(self, number: int) -> float:
        return self.anchor + number * self.interval

    def after(self, moment: float) -> float | None:
        """Return the first tick that is later than this."""
        number = math.floor((moment - self.anchor) / self.interval) + 1
        while self.time(number) <= moment:
            number += 1
        while self.time(number - 1) > moment:
            number -= 1
        due = self.time(number)
        return due if due <= self.end else None

    def between(self, first: float, until: float) -> list[float]:
        """Return the ticks from `first` to `until`, both included."""
        low = math.ceil((first - self.anchor) / self.interval - 1e-6)
        high = math.floor((min(until, self.end) - self.anchor) / self.interval + 1e-6)
        times = (self.time(number) for number in range(low, high + 1))
        return [t for t in times if t <= min(until, self.end)]

    def caught_up(self, first: float | None, now: float) -> list[float]:
        """Return which of the ticks since `first` the catch-up policy runs."""
        due = [] if first is None or first > now else self.between(first, now)
        if self.catchup == "all":
            return due[-self.catchup_max :]
        if self.catchup == "none":
            return [t for t in due[-1:] if now - t <= NONE_LATE_SECONDS]
        return due[-1:]
