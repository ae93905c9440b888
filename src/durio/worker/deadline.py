"""Time limits: the soft limit warns, the hard limit ends.

There is one timer for the whole worker, set to the earliest limit of all that runs. A job
that ends in time costs one comparison; a timer of its own would cost more than the job.
"""

import asyncio
from collections.abc import Callable, Mapping

from durio.worker.inflight import Attempt

GRAIN_SECONDS = 0.01
NEVER = float("inf")


class Deadlines:
    """Looks at running attempts when the earliest limit is due."""

    def __init__(
        self,
        running: Mapping[bytes, Attempt],
        soft: Callable[[Attempt], None],
        hard: Callable[[Attempt], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = running
        self._soft = soft
        self._hard = hard
        self._next = NEVER
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, attempt: Attempt) -> None:
        """From now on this attempt's limits count."""
        limits = attempt.limits
        if limits.soft_seconds is None:
            return
        attempt.limit_at = limit_at = attempt.started + limits.soft_seconds
        if limit_at < self._next:
            self._arm(limit_at)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = at
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        """Warn or end what is due, then sleep until the next limit."""
        now = self._loop.time()
        self._next, self._timer = NEVER, None
        for attempt in list(self._running.values()):
            if attempt.limit_at <= now:
                self._hit(attempt, now)
        earliest = min((a.limit_at for a in self._running.values()), default=NEVER)
        if earliest < NEVER:
            self._arm(max(earliest, now + GRAIN_SECONDS))

    def _hit(self, attempt: Attempt, now: float) -> None:
        limits = attempt.limits
        hard = attempt.started + (limits.hard_seconds or NEVER)
        if now < hard:
            attempt.limit_at = hard
            self._soft(attempt)
        else:
            attempt.limit_at = NEVER
            self._hard(attempt)

    def close(self) -> None:
        """No more limits."""
        if self._timer is not None:
            self._timer.cancel()
