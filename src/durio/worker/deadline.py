"""Time limits: the soft limit warns, the hard limit ends an attempt.

The whole worker has one timer, set to the earliest limit of all running attempts. A job
that ends in time costs one comparison; a timer of its own would cost more than the job.

While a call blocks the event loop, no attempt makes progress and no end is noticed. That
time does not count, except for the attempt that the watchdog saw blocking. If it saw none,
any attempt may have blocked the loop: then each one gets at most its hard limit as extra
time. The watchdog calls `on_loop_alive` several times a second; a gap between calls is a
stall.
"""

import asyncio
from collections.abc import Callable, Mapping

from durio.worker.inflight import Attempt

GRAIN_SECONDS = 0.01
NEVER = float("inf")


class Deadlines:
    """Checks running attempts when the earliest limit is due."""

    def __init__(
        self,
        running: Mapping[bytes, Attempt],
        give_up: Callable[[Attempt], None],
        stall_seconds: float,
        *,
        is_on: bool = True,
    ) -> None:
        self._is_on = is_on
        self._loop = asyncio.get_running_loop()
        self._running = running
        self._give_up = give_up
        self._stall_seconds = stall_seconds
        self._next = NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._alive_at = NEVER  # the watchdog does not run yet
        self.blocking_attempt: Attempt | None = (
            None  # set by the watchdog, from the side loop
        )

    def watch(self, attempt: Attempt) -> None:
        limits = attempt.limits
        if limits.soft_seconds is None or not self._is_on:
            return
        attempt.limit_at = limit_at = attempt.started + limits.soft_seconds
        if limit_at < self._next:
            self._arm(limit_at)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = at
        self._timer = self._loop.call_at(at, self._check)

    def on_loop_alive(self) -> None:
        """Note that the loop runs.

        After a stall, the attempts that did not cause it are excused.
        """
        now = self._loop.time()
        stalled, self._alive_at = now - self._alive_at, now
        if stalled > self._stall_seconds:
            for attempt in self._running.values():
                if attempt is not self.blocking_attempt:
                    excuse(attempt, stalled, is_bounded=self.blocking_attempt is None)
        self.blocking_attempt = None

    def _check(self) -> None:
        """Warn or end attempts whose limit has passed, then sleep until the next limit."""
        if self._alive_at < NEVER:
            self.on_loop_alive()  # on some loops timers run before the watchdog's call
        now = self._loop.time()
        self._next, self._timer = NEVER, None
        try:
            for attempt in list(self._running.values()):
                if attempt.limit_at <= now:
                    self._hit(attempt, now)
        finally:  # an error in one attempt must not end the limits of the others
            earliest = min((a.limit_at for a in self._running.values()), default=NEVER)
            if earliest < NEVER:
                self._arm(max(earliest, now + GRAIN_SECONDS))

    def _hit(self, attempt: Attempt, now: float) -> None:
        limits = attempt.limits
        hard = (
            attempt.started + attempt.excused_seconds + (limits.hard_seconds or NEVER)
        )
        if now < hard:
            attempt.limit_at = hard
            attempt.warn()
        else:
            attempt.limit_at = NEVER
            self._give_up(attempt)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def excuse(attempt: Attempt, seconds: float, *, is_bounded: bool) -> None:
    """Exclude this time from the attempt's limits."""
    if is_bounded:
        hard = attempt.limits.hard_seconds or 0.0
        seconds = min(seconds, max(0.0, hard - attempt.excused_seconds))
    attempt.excused_seconds += seconds
    attempt.limit_at += seconds
