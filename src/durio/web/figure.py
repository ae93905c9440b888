"""A value that is expensive to read: read at most once at a time, and rarely, for all viewers.

After a count it rests 20 times as long as the count took, so counting takes at most a
twentieth of the time. A viewer waits a moment for a count that is due, and then gets the
value before it; the count goes on for the next viewers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from durio.ports.clock import Clock

T = TypeVar("T")

REST_FACTOR = 20
REST_SECONDS_MAX = 60.0
WAIT_SECONDS = 0.1  # for a new value, if there is an older one


class Dated(NamedTuple, Generic[T]):
    """A value, and when its count began."""

    value: T
    at: float


class Figure(Generic[T]):
    """The value, for the requests of one event loop."""

    def __init__(
        self,
        clock: Clock,
        count: Callable[[], Awaitable[T]],
        *,
        pause_seconds: float,  # between two counts, at least
        brief_seconds: float = 0.0,  # a shorter count needs no rest
        rest_factor: float = REST_FACTOR,
    ) -> None:
        self._clock = clock
        self._count = count
        self._pause_seconds = pause_seconds
        self._brief_seconds = brief_seconds
        self._rest_factor = rest_factor
        self._known: Dated[T] | None = None
        self._again_at = 0.0  # by the monotonic clock
        self._counting: asyncio.Task[Dated[T]] | None = None

    async def read(self) -> Dated[T]:
        """Return the value; counted now if its rest is over.

        If that takes long or fails, the value before it is returned.
        """
        known = self._known
        if known is not None and self._clock.monotonic() < self._again_at:
            return known
        if self._counting is None:
            self._counting = asyncio.get_running_loop().create_task(self._counted())
            self._counting.add_done_callback(self._ended)
        counting = self._counting
        await asyncio.wait({counting}, timeout=None if known is None else WAIT_SECONDS)
        if counting.done() and not counting.cancelled():
            error = counting.exception()
            if error is None:
                return counting.result()
            if known is None:
                raise error
        return self._known or known or await asyncio.shield(counting)

    async def _counted(self) -> Dated[T]:
        began, at = self._clock.monotonic(), self._clock.now()
        self._known = Dated(await self._count(), at)
        ended = self._clock.monotonic()
        self._again_at = ended + self._rest_after(ended - began)
        return self._known

    def _rest_after(self, seconds: float) -> float:
        rest = min(self._rest_factor * seconds, REST_SECONDS_MAX)
        if seconds <= self._brief_seconds:
            rest = 0.0
        return max(self._pause_seconds, rest)

    def _ended(self, counting: "asyncio.Task[Dated[T]]") -> None:
        self._counting = None
        if not counting.cancelled():
            counting.exception()  # `read` raises it; without a caller it is dropped
