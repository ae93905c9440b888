"""The numbers of jobs by queue, for all viewers of a dashboard.

A count reads an index entry for each waiting and dead job. A long one is kept for twenty
times as long as it took, so that viewers cost the store at most a twentieth of its time.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from durio.ports.browse import LaneRow
from durio.ports.clock import Clock
from durio.ports.store import Store

REST_FACTOR = 20.0
REST_SECONDS_MAX = 60.0
LONG_SECONDS = 0.02  # a shorter count is not kept


class QueueNumbers(NamedTuple):
    """The jobs of each lane, as they were counted at one time."""

    lanes: Mapping[str, LaneRow]
    at: float  # seconds since 1970


class QueueFigures:
    """Counts for all viewers of a dashboard; callers that ask together share a count."""

    def __init__(self) -> None:
        self._last: QueueNumbers | None = None
        self._until = 0.0  # monotonic
        self._counting: WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Task[QueueNumbers]
        ] = WeakKeyDictionary()

    async def read(self, store: Store, namespace: str, clock: Clock) -> QueueNumbers:
        """Return the last count, or a new one if it is too old."""
        if self._last is not None and clock.monotonic() < self._until:
            return self._last
        loop = asyncio.get_running_loop()
        counting = self._counting.get(loop)
        if counting is None or counting.done():
            counting = loop.create_task(self._count(store, namespace, clock))
            counting.add_done_callback(forget_error)
            self._counting[loop] = counting
        return await asyncio.shield(counting)

    async def _count(self, store: Store, namespace: str, clock: Clock) -> QueueNumbers:
        begun_at = clock.monotonic()
        rows = await store.queues(namespace, counts=True, oldest=True)
        ended_at = clock.monotonic()
        took = ended_at - begun_at
        rest = min(REST_FACTOR * took, REST_SECONDS_MAX) if took > LONG_SECONDS else 0.0
        self._last = QueueNumbers({row.name: row for row in rows}, clock.now())
        self._until = ended_at + rest
        return self._last


def forget_error(counting: "asyncio.Task[QueueNumbers]") -> None:
    """Of a count that no caller waits for any more: its error is not reported as lost."""
    if not counting.cancelled():
        counting.exception()
