"""The connection from one simulated process to the store, and its faults.

Every call travels to the store, is executed by the real store in one atomic step, and
its answer travels back. Each trip takes virtual time, so a process can be killed before
its call is executed, or between its call and the answer. `Trouble` lists the other
faults: the nemesis sets it, for one process or for all, and heals it.

A connection to a server can break under a call, and the caller learns this immediately:
before the call is executed, after it, or while the server still has it and executes it
late. A process that connects again ends what the server still does for it. But an
enqueue may have got through a pooler, and arrive after its own repeat was stored, run
and finished. (It never arrives after its repeat was refused because a queue is full: the
caller has that answer, and it must stay true.)
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from durio.model.errors import StoreError, StoreFull, StoreUnavailable
from durio.model.job import READY, NewJob
from durio.ports.enqueue import Enqueued, Locked
from durio.ports.store import Health, Store, Wake
from tests.faults.faulty_store import add_store_methods
from tests.simulation.world import Node

TRIP_SECONDS = 0.002
TIMEOUT_SECONDS = 5.0  # until a caller gives up on an answer
LATE_SECONDS_MAX = (
    15.0  # how long the server may keep a call after its connection broke
)
LATE_METHODS = {"enqueue", "exchange", "commit"}  # calls that it may execute late
LEASE_METHODS = {"register", "renew", "lead", "rescue"}
SMALL_WRITES = 0.2  # share of other calls that a full disk takes
LOCK_SECONDS = 0.1  # how long an enqueue waits for a key
LOCKED = Locked(StoreUnavailable("simulated: locked"), wait_seconds=30.0)
NO_WAKEUP = Wake(woken=False, lanes=frozenset(), control=False)


@dataclass(slots=True)
class Trouble:
    """What goes wrong between processes and the store; shares are from 0 to 1."""

    cut_until: float = 0.0  # no call arrives, no answer comes back
    full_until: float = 0.0  # the disk is full
    deaf_until: float = 0.0  # no wakeup arrives
    slow_until: float = 0.0
    slow_seconds: float = 0.0  # additional mean time of a trip
    flaky_until: float = 0.0
    refused: float = 0.0  # not executed, and the caller knows
    unsent: float = 0.0  # not executed, and the caller does not know
    unanswered: float = 0.0  # executed, and the caller does not know
    broken_until: float = 0.0
    broken: float = 0.0  # the connection breaks under the call
    resets: int = 0  # how often all connections broke at once
    locked_until: float = 0.0  # open transactions hold half of the keys


class CallObserver(Protocol):
    """Observes calls at the store."""

    store: Store

    def executed(
        self, node: Node, method: str, args: tuple[Any, ...], answer: Any
    ) -> None:
        """Called after the store has executed a call."""
        ...


class SimulatedLink(Store):
    """A store with every method of the real one, at the far end of a connection."""

    def __init__(
        self,
        node: Node,
        server: CallObserver,
        *troubles: Trouble,
        trip_seconds: float = TRIP_SECONDS,
    ) -> None:
        self.node = node
        self.server = server
        self.troubles = troubles  # of this process, and of all nodes
        self.trip_seconds = trip_seconds  # one way, mean, without trouble
        self.chance = node.world.chance(f"line of {node.name}/{node.boot}")
        # Calls that the server executes late, by worker (exchange) or job id (enqueue).
        self.late_calls: dict[int | bytes, list[asyncio.Task[None]]] = {}
        self.stored_ids: set[bytes] = set()  # jobs that the store reported as stored

    async def call(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """One round trip: request, execution, reply."""
        resets = self._resets()
        await self._travel()
        if method == "exchange":
            self._cancel_late_calls(args[0])
        breaks = self._breaks()
        if self._resets() != resets or breaks in ("before", "late"):
            if breaks == "late" and method in LATE_METHODS:
                self._do_late(method, args, options)
            raise unavailable(method, unknown=True)
        await self._check_request(method)
        if method == "enqueue" and self._is("locked"):
            answer = await self._enqueue_locked(args[0], options)
        else:
            answer = await self._do(method, args, options)
        await self._travel()
        if self._resets() != resets or breaks == "after":
            raise unavailable(method, unknown=True)
        await self._check_reply(method)
        return answer

    async def _do(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Execute a call at the store."""
        answer = await getattr(self.server.store, method)(*args, **options)
        self.server.executed(self.node, method, args, answer)
        if method == "enqueue":
            self._cancel_late_calls(
                *(told.id for told in answer if told.full is not None)
            )
            self.stored_ids.update(told.id for told in answer if told.full is None)
        return answer

    async def _enqueue_locked(
        self, jobs: Sequence[NewJob], options: dict[str, Any]
    ) -> list[Enqueued]:
        """Enqueue as PostgreSQL does while open transactions hold keys.

        If a batch finds a locked key, the calls without keys are stored, and all others get
        the result `locked`.
        """
        if not any(is_locked(job) for job in jobs):
            return await self._do("enqueue", (jobs,), options)
        await self.node.clock.sleep(LOCK_SECONDS)
        plain = [job for job in jobs if job.key is None]
        stored: list[Enqueued] = []
        if plain:
            assert sum(options["calls"]) == len(options["calls"]), "single jobs"
            calls = [1] * len(plain)
            stored = await self._do("enqueue", (plain,), {**options, "calls": calls})
        answers = iter(stored)
        return [
            next(answers)
            if job.key is None
            else Enqueued(job.id, False, READY, locked=LOCKED)
            for job in jobs
        ]

    def call_nowait(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Forward a call that a store completes without a round trip."""
        return getattr(self.server.store, method)(*args, **options)

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        """Wait for a wakeup, or until the time is over."""
        if self._is("cut") or self._is("deaf"):
            await self.node.clock.sleep(timeout_seconds)
            return NO_WAKEUP
        wake = await self.server.store.wait(worker, timeout_seconds)
        return NO_WAKEUP if self._is("cut") or self._is("deaf") else wake

    async def health(self, worker: int | None = None) -> Health:
        """Report what the rows of the workers show, even on a full disk."""
        if worker is None:
            return Health(stalled_by=None, behind_seconds=math.inf)
        await self._travel()
        if self._is("cut"):
            await self.node.clock.sleep(TIMEOUT_SECONDS)
            raise unavailable("health", unknown=False)
        return await self.server.store.health(worker)

    async def open(self) -> None:
        """Do nothing: the world has opened the store."""

    async def close(self) -> None:
        """Do nothing: the store stays open for other nodes."""

    # --- trouble

    def _is(self, what: str) -> bool:
        now = self.node.world.seconds
        return any(now < getattr(one, f"{what}_until") for one in self.troubles)

    def _share(self, what: str) -> float:
        now = self.node.world.seconds
        shares = [getattr(t, what) for t in self.troubles if now < t.flaky_until]
        return max(shares, default=0.0)

    # --- broken connections

    def _resets(self) -> int:
        return sum(one.resets for one in self.troubles)

    def _breaks(self) -> str | None:
        """Return when the connection breaks during this call; draw only while it can break."""
        now = self.node.world.seconds
        share = max(
            (t.broken for t in self.troubles if now < t.broken_until), default=0
        )
        if not share:
            return None
        drawn = self.chance.random() / share
        return ("before", "after", "late")[int(drawn * 3)] if drawn < 1 else None

    def _do_late(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Execute a call later, also if the calling process has ended meanwhile."""
        world = self.node.world
        seconds = LATE_SECONDS_MAX * self.chance.random()

        async def do() -> None:
            await world.director.clock.sleep(seconds)
            with suppress(StoreError):
                if not self._has_space(method):
                    return
                if method != "enqueue" or not await self._is_forgotten(args[0]):
                    await self._do(method, args, options)

        task = world.director.main.create_task(do())
        keys: list[Any] = [job.id for job in args[0]] if method == "enqueue" else []
        keys += [args[0]] if method == "exchange" else []
        for key in keys:  # a job may be enqueued again, and its call may be lost again
            self.late_calls.setdefault(key, []).append(task)

    async def _is_forgotten(self, jobs: Sequence[NewJob]) -> bool:
        """Whether a repeat was stored, and has left no trace since.

        A store behind a network remembers repeats. This one does not, because it expects no
        late calls.
        """
        ids = [job.id for job in jobs if job.id in self.stored_ids]
        return len(await self.server.store.states(ids)) < len(ids)

    def _cancel_late_calls(self, *keys: int | bytes) -> None:
        """Cancel a process's earlier calls at the server when it repeats a call."""
        for key in keys:
            for task in self.late_calls.pop(key, ()):
                if task is not asyncio.current_task():
                    task.cancel()

    async def _travel(self) -> None:
        now = self.node.world.seconds
        slow = [t.slow_seconds for t in self.troubles if now < t.slow_until]
        mean = self.trip_seconds + max(slow, default=0.0)
        await self.node.clock.sleep(mean * (0.5 + self.chance.random()))

    async def _check_request(self, method: str) -> None:
        if self._is("cut"):
            await self.node.clock.sleep(TIMEOUT_SECONDS)
            raise unavailable(method, unknown=True)
        if not self._has_space(method):
            raise StoreFull(f"simulated: no space for {method}")
        if self._share("refused") > self.chance.random():
            raise unavailable(method, unknown=False)
        if self._share("unsent") > self.chance.random():
            await self.node.clock.sleep(TIMEOUT_SECONDS)
            raise unavailable(method, unknown=True)

    def _has_space(self, method: str) -> bool:
        """Whether a call is written; a full disk takes some small writes, but no renewal."""
        if not self._is("full"):
            return True
        return method not in LEASE_METHODS and self.chance.random() < SMALL_WRITES

    async def _check_reply(self, method: str) -> None:
        if self._is("cut") or self._share("unanswered") > self.chance.random():
            await self.node.clock.sleep(TIMEOUT_SECONDS)
            raise unavailable(method, unknown=True)


add_store_methods(SimulatedLink, SimulatedLink.call, SimulatedLink.call_nowait)


def is_locked(job: NewJob) -> bool:
    """Whether the job's key is one of those that get locked."""
    return job.key is not None and job.key.key[-1] % 2 == 0


def unavailable(method: str, *, unknown: bool) -> StoreError:
    return StoreUnavailable(f"simulated: no answer to {method}", unknown=unknown)
