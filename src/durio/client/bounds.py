"""What an App says about the sizes of its queues, and how long an enqueue waits for room."""

import asyncio
from collections.abc import Collection

from durio.model.options import UNSET
from durio.model.quantities import seconds
from durio.model.queues import Queue
from durio.ports.store import Store


class Bounds:
    """By lane, as far as the code says anything; `default` is for all other lanes."""

    def __init__(self, wait_seconds: float) -> None:
        self.maxsizes: dict[str, int | None] = {}
        self.waits: dict[str, float] = {}
        self.default: int | None = None
        self._wait_seconds = wait_seconds

    def declare(self, lane: str, queue: Queue) -> None:
        """What the code declares; what it leaves out stays as it was."""
        if queue.maxsize is not UNSET:
            self.maxsizes[lane] = queue.maxsize
        if queue.full_wait is not UNSET:
            self.waits[lane] = seconds(queue.full_wait, "full_wait")

    def wait_of(self, lane: str) -> float:
        """How long an enqueue waits for room there."""
        return self.waits.get(lane, self._wait_seconds)


class BoundsDeclarer:
    """What one store has been told of an App's bounds."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._bounds = bounds
        self._declared: dict[str, int | None] = {}
        self._by_default: set[str] = set()
        self._declaring: asyncio.Future[bool] | None = None  # whether it could tell

    async def declare(self, lanes: Collection[str]) -> None:
        """Tell what is new, before the first job goes to these lanes.

        Of many at once the first one tells, and all others wait for it; where it could
        not, each of them tries for itself.
        """
        while self._has_changes(lanes):
            if self._declaring is None:
                await self._send_first(lanes)
            elif not await asyncio.shield(self._declaring):
                await self._send(lanes)

    def _has_changes(self, lanes: Collection[str]) -> bool:
        bounds = self._bounds
        return bounds.maxsizes != self._declared or (
            bounds.default is not None and bool(self._without_bound(lanes))
        )

    def _without_bound(self, lanes: Collection[str]) -> set[str]:
        """Those that get the default, and have not got it yet."""
        return set(lanes) - self._by_default - self._bounds.maxsizes.keys()

    async def _send_first(self, lanes: Collection[str]) -> None:
        first = self._declaring = asyncio.get_running_loop().create_future()
        has_told = False
        try:
            await self._send(lanes)
            has_told = True
        finally:
            self._declaring = None
            first.set_result(has_told)

    async def _send(self, lanes: Collection[str]) -> None:
        bounds = self._bounds
        if bounds.maxsizes != self._declared:
            told = dict(bounds.maxsizes)
            await self._store.declare(told)
            self._declared = told
        if bounds.default is not None:
            new = self._without_bound(lanes)
            if new:
                sizes = dict.fromkeys(new, bounds.default)
                await self._store.declare(sizes, is_default=True)
                self._by_default |= new

    @property
    def is_needed(self) -> bool:
        """Whether there may be anything to tell: mostly not."""
        return (
            self._bounds.default is not None or self._bounds.maxsizes != self._declared
        )


async def declare_at_start(store: Store, bounds: Bounds, namespace: str) -> None:
    """What a worker tells the store when it begins.

    The default of an embedded worker ends where a worker of its own serves the queues.
    """
    if bounds.maxsizes:
        await store.declare(dict(bounds.maxsizes))
    if bounds.default is None:
        lanes = await store.queues(namespace)
        if lanes:
            none = dict.fromkeys((lane.name for lane in lanes), None)
            await store.declare(none, is_default=True)
