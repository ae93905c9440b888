"""The way from one simulated process to the store, and what can go wrong on it.

Every call travels there, is executed by the real store in one atomic step, and its answer
travels back. Each of the two ways takes virtual time, so a process can be killed before
its call, or between its call and the answer. What else can happen is in `Trouble`: the
nemesis sets it, for one process or for all, and heals it.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Protocol

from durio.model.errors import StoreError, StoreFull, StoreUnavailable
from durio.ports.store import Store, Wake
from durio.testing.faulty import stand_in
from durio.testing.world import Node

TRIP_SECONDS = 0.002
TIMEOUT_SECONDS = 5.0  # until a caller gives up on an answer that does not come
QUIET = Wake(rung=False, lanes=frozenset(), control=False)


@dataclass(slots=True)
class Trouble:
    """What goes wrong between processes and the store; shares are from 0 to 1."""

    cut_until: float = 0.0  # no call arrives, no answer comes back
    full_until: float = 0.0  # the disk is full
    deaf_until: float = 0.0  # no ring arrives
    slow_until: float = 0.0
    slow_seconds: float = 0.0  # more for each trip, on the average
    flaky_until: float = 0.0
    refused: float = 0.0  # not executed, and the caller knows
    unsent: float = 0.0  # not executed, and the caller does not know
    unanswered: float = 0.0  # executed, and the caller does not know


class Server(Protocol):
    """Who watches the calls at the store's side."""

    store: Store
    writes: Counter[str]  # by node: what it changed, or may have

    def executed(
        self, node: Node, method: str, args: tuple[Any, ...], answer: Any
    ) -> None:
        """The store has done this."""
        ...


class Line(Store):
    """A store with every method of the real one, at the end of a line."""

    def __init__(
        self,
        node: Node,
        server: Server,
        *troubles: Trouble,
        trip_seconds: float = TRIP_SECONDS,
    ) -> None:
        self.node = node
        self.server = server
        self.troubles = troubles  # of this process, and of everybody
        self.trip_seconds = trip_seconds  # one way, on the average, if all is well
        self.chance = node.world.chance(f"line of {node.name}/{node.boot}")
        self.writes_seen = 0  # of others, when we last renewed or asked

    async def call(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """One round trip."""
        await self._travel()
        await self._there(method)
        answer = await getattr(self.server.store, method)(*args, **options)
        self.server.executed(self.node, method, args, answer)
        if method == "renew":
            self.writes_seen = self._writes_of_others()
        await self._travel()
        await self._back(method)
        return answer

    def call_nowait(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """What a store knows without going anywhere."""
        return getattr(self.server.store, method)(*args, **options)

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        """Until a ring arrives, or the time is over."""
        if self._is("cut") or self._is("deaf"):
            await self.node.clock.sleep(timeout_seconds)
            return QUIET
        wake = await self.server.store.wait(worker, timeout_seconds)
        return QUIET if self._is("cut") or self._is("deaf") else wake

    async def is_contested(self, worker: int) -> bool:
        """A look at the file, as it were: a full disk allows it.

        The store itself cannot tell: in memory everybody is the same process to it.
        """
        del worker
        await self._travel()
        if self._is("cut"):
            await self.node.clock.sleep(TIMEOUT_SECONDS)
            raise away("is_contested", unknown=False)
        seen, self.writes_seen = self.writes_seen, self._writes_of_others()
        return seen != self.writes_seen

    def _writes_of_others(self) -> int:
        writes = self.server.writes
        return writes.total() - writes[self.node.name]

    async def open(self) -> None:
        """It is open already: it belongs to the world."""

    async def close(self) -> None:
        """Whoever leaves does not close it for the others."""

    # --- trouble

    def _is(self, what: str) -> bool:
        now = self.node.world.seconds
        return any(now < getattr(one, f"{what}_until") for one in self.troubles)

    def _share(self, what: str) -> float:
        now = self.node.world.seconds
        shares = [getattr(t, what) for t in self.troubles if now < t.flaky_until]
        return max(shares, default=0.0)

    async def _travel(self) -> None:
        now = self.node.world.seconds
        slow = [t.slow_seconds for t in self.troubles if now < t.slow_until]
        mean = self.trip_seconds + max(slow, default=0.0)
        await self.node.clock.sleep(mean * (0.5 + self.chance.random()))

    async def _there(self, method: str) -> None:
        if self._is("cut"):
            await self.node.clock.sleep(TIMEOUT_SECONDS)
            raise away(method, unknown=True)
        if self._is("full"):
            raise StoreFull(f"simulated: no space for {method}")
        if self._share("refused") > self.chance.random():
            raise away(method, unknown=False)
        if self._share("unsent") > self.chance.random():
            await self.node.clock.sleep(TIMEOUT_SECONDS)
            raise away(method, unknown=True)

    async def _back(self, method: str) -> None:
        if self._is("cut") or self._share("unanswered") > self.chance.random():
            await self.node.clock.sleep(TIMEOUT_SECONDS)
            raise away(method, unknown=True)


stand_in(Line, Line.call, Line.call_nowait)


def away(method: str, *, unknown: bool) -> StoreError:
    """No answer came."""
    return StoreUnavailable(f"simulated: no answer to {method}", unknown=unknown)
