"""Polling with a delay that doubles while nothing happens."""

from datetime import datetime

from durio.model.errors import InvalidOption
from durio.model.quantities import Duration, seconds
from durio.model.retry import Snooze

DOUBLINGS_MAX = 40  # so that a float never overflows


class Poll:
    """Delays of a task that looks again and again: short after news, longer without.

    The delay begins with `active`, doubles while nothing happens, and is at most
    `idle_max`. The task raises what `again` returns: it is a Snooze, so the job runs again
    after the delay without a retry, at most 10,000 times.

        from durio.limits import Poll

        poll = Poll(active="30s", idle_max="5m")


        @app.task
        async def watch(feed: str) -> None:
            newest = await time_of_newest_entry(feed)
            raise poll.again(newest)
    """

    __module__ = "durio.limits"

    def __init__(
        self,
        active: Duration = "30s",  # delay after news, and the first delay
        idle_max: Duration = "5m",  # longest delay
    ) -> None:
        self.active_seconds = seconds(active, "active")
        self.idle_max_seconds = seconds(idle_max, "idle_max")
        if not 0 < self.active_seconds <= self.idle_max_seconds:
            raise InvalidOption(
                f"Poll cannot take active={active!r} with idle_max={idle_max!r}",
                cure="Give durations above 0, with idle_max at least as long as active.",
                option="active",
                value=active,
            )

    def __repr__(self) -> str:
        return f"Poll({self.active_seconds:g}, {self.idle_max_seconds:g})"

    def again(self, active_at: datetime | None = None) -> Snooze:
        """Return a Snooze: raise it to look again later.

        `active_at` is when something last happened: an aware datetime. Without it nothing
        has happened in this job, and the delay doubles with each of its snoozes.
        """
        if active_at is None:
            return PollSnooze(self, None)
        if not isinstance(active_at, datetime) or active_at.utcoffset() is None:
            raise InvalidOption(
                f"active_at cannot be {active_at!r}",
                cure="Give an aware datetime, such as datetime.now(UTC).",
                option="active_at",
                value=active_at,
            )
        return PollSnooze(self, active_at.timestamp())

    def delay_seconds(
        self, *, active_at: float | None, snoozed: int, now: float
    ) -> float:
        """Return the delay before the next look."""
        if active_at is None:
            delay = self.active_seconds * 2 ** min(snoozed, DOUBLINGS_MAX)
        else:
            # After looks that found nothing, the time since the last news is the sum of
            # their delays: this is the next number in the series that doubles.
            delay = self.active_seconds + max(0.0, now - active_at)
        return min(delay, self.idle_max_seconds)


class PollSnooze(Snooze):
    """A Snooze whose delay is computed when the attempt ends."""

    def __init__(self, poll: Poll, active_at: float | None) -> None:
        super().__init__(poll.active_seconds)
        self._poll = poll
        self._active_at = active_at

    def seconds_until_next(self, *, snoozed: int, now: float) -> float:
        """Return the delay, from the job's number of snoozes and the time."""
        return self._poll.delay_seconds(
            active_at=self._active_at, snoozed=snoozed, now=now
        )
