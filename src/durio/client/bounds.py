"""The queue bounds that an App declares, and how long an enqueue waits for room."""

import asyncio
from collections.abc import Collection

from durio.model.names import queue_of
from durio.model.options import UNSET
from durio.model.quantities import seconds
from durio.model.queues import Queue
from durio.ports.enqueue import Full
from durio.ports.store import Store


class Bounds:
    """Bounds by lane, as the code declares them; `default` is for all other lanes."""

    def __init__(self, wait_seconds: float) -> None:
        self.maxsizes: dict[str, int | None] = {}
        self.waits: dict[str, float] = {}
        self.default: int | None = None
        self._wait_seconds = wait_seconds

    def declare(self, lane: str, queue: Queue) -> None:
        """Store the options that the declaration gives; keep the others."""
        if queue.maxsize is not UNSET:
            self.maxsizes[lane] = queue.maxsize
        if queue.full_wait is not UNSET:
            self.waits[lane] = seconds(queue.full_wait, "full_wait")

    def origin_of(self, full: Full) -> str:
        """Return what set the bound of a queue, as far as this App can know."""
        declared = self.maxsizes.get(full.lane)
        if full.is_soft:
            return "the setting queue.soft_max"
        if full.limit == declared:
            queue = queue_of(full.lane)
            return f"app.queue({queue!r}, maxsize={declared}) in this code"
        if full.lane not in self.maxsizes and full.limit == self.default:
            return "the setting queue.embedded_max, for a worker in this process"
        return "`durio queues limit`, or by the code of another program"

    def wait_of(self, lane: str) -> float:
        """Return seconds that an enqueue waits for room in this lane."""
        return self.waits.get(lane, self._wait_seconds)


class BoundsDeclarer:
    """Declares an App's bounds to one store, each change once."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._bounds = bounds
        self._declared: dict[str, int | None] = {}
        self._by_default: set[str] = set()
        # While a declaration is in progress: whether it succeeds.
        self._declaring: asyncio.Future[bool] | None = None

    async def declare(self, lanes: Collection[str]) -> None:
        """Declare new bounds before the first job is sent to these lanes.

        Of several concurrent callers the first one declares and the others wait for it; if
        it fails, each of them tries again.
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
        """Return the lanes whose default bound is not declared yet."""
        return set(lanes) - self._by_default - self._bounds.maxsizes.keys()

    async def _send_first(self, lanes: Collection[str]) -> None:
        first = self._declaring = asyncio.get_running_loop().create_future()
        succeeded = False
        try:
            await self._send(lanes)
            succeeded = True
        finally:
            self._declaring = None
            first.set_result(succeeded)

    async def _send(self, lanes: Collection[str]) -> None:
        bounds = self._bounds
        if bounds.maxsizes != self._declared:
            maxsizes = dict(bounds.maxsizes)
            await self._store.declare(maxsizes)
            self._declared = maxsizes
        if bounds.default is not None:
            new = self._without_bound(lanes)
            if new:
                sizes = dict.fromkeys(new, bounds.default)
                await self._store.declare(sizes, is_default=True)
                self._by_default |= new

    @property
    def is_needed(self) -> bool:
        """Whether there may be something to declare; False for most calls."""
        return (
            self._bounds.default is not None or self._bounds.maxsizes != self._declared
        )


async def declare_at_start(store: Store, bounds: Bounds, namespace: str) -> None:
    """Declare an App's bounds when a worker starts.

    A worker without a default bound removes the default that an embedded worker set.
    """
    if bounds.maxsizes:
        await store.declare(dict(bounds.maxsizes))
    if bounds.default is None:
        lanes = await store.queues(namespace)
        if lanes:
            none = dict.fromkeys((lane.name for lane in lanes), None)
            await store.declare(none, is_default=True)
