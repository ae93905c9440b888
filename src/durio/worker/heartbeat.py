"""The heartbeat: renews the lease, receives cancels, and fences the worker in time.

Each heartbeat also measures the worker's vitals, for the store and for the supervisor.

The heartbeat runs on a side loop (`ports.executor.SideLoop`), so that a worker keeps its
jobs while its event loop is blocked. The deadline counts from *before* the last successful
renewal: at the end of the lease minus a margin the heartbeat fences the worker, before
another worker may take its jobs. No call may last beyond that deadline, so a store that
hangs gets only the time that is left.

When no worker can renew (a full disk, a stopped writer), no worker takes the jobs of others
either: it does so only while its own lease is fresh (`WorkerIdentity.may_rescue`). A store
that can compare the renewals reports it (`Health.behind_seconds`), and the worker keeps its
jobs and outcomes until writes work again. On a full disk some small writes still succeed, so
writes of others alone mean nothing. After a renewal that timed out the next one is sent
immediately, so that it is the first write when writing is possible again.
"""

import asyncio
import math
from collections.abc import Callable, Sequence, Sized
from typing import Protocol

from durio.model.errors import StoreError
from durio.model.settings import WorkerSettings
from durio.ports.clock import Clock
from durio.ports.executor import ChildVitals
from durio.ports.fleet import ProcessMessage, SendProcessMessage
from durio.ports.lease import Command, Renewed, Vitals
from durio.ports.store import Health, Store
from durio.telemetry.emit import Emit
from durio.worker.deadline import NEVER
from durio.worker.worker_config import FRESH_RENEWALS, WorkerIdentity

BLOCKED_TRIES = 4  # renewals per interval, while no worker can renew
NO_CHILDREN = ChildVitals(0.0, 0, 0)
UNKNOWN_HEALTH = Health(stalled_by=None, behind_seconds=math.inf)


class ProcessUsage(Protocol):
    def cpu_seconds(self) -> float:
        """Return user and system time so far."""
        ...

    def rss_bytes(self) -> int:
        """Return the resident memory in use now."""
        ...


class AttemptCounts(Protocol):
    @property
    def running(self) -> Sized: ...

    @property
    def ended(self) -> int: ...

    @property
    def is_closed(self) -> bool: ...


class VitalsReporter:
    """Measures one worker; without `send_message` only the store gets the numbers."""

    def __init__(
        self,
        settings: WorkerSettings,
        usage: ProcessUsage,
        attempts: AttemptCounts,
        send_message: SendProcessMessage | None,
        measure_children: Callable[[], ChildVitals] | None,
        loop_lag: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._usage = usage
        self._attempts = attempts
        self._send_message = send_message
        self._measure_children = measure_children or (lambda: NO_CHILDREN)
        self._loop_lag = loop_lag

    def ready(self, tasks: int) -> None:
        """Report that the worker has a lease and claims jobs."""
        if self._send_message is not None:
            settings = self._settings
            message = ProcessMessage(
                word="ready",
                tasks=tasks,
                grace_seconds=settings.grace_seconds,
                lease_seconds=settings.lease_seconds,
            )
            self._send_message(message)

    def measure(self) -> Vitals:
        """Measure, and report to the supervisor; called from the heartbeat's thread."""
        children = self._measure_children()
        vitals = Vitals(
            round(self._usage.cpu_seconds() + children.cpu_seconds, 3),
            self._usage.rss_bytes() + children.rss_bytes,
            self._attempts.ended,
            children.count,
            self._attempts.is_closed,
            self._loop_lag(),
        )
        if self._send_message is not None:
            message = ProcessMessage(
                word="beat",
                running=len(self._attempts.running),
                rss_bytes=vitals.rss_bytes,
                wants_recycle=self._wants_recycle(vitals),
            )
            self._send_message(message)
        return vitals

    def _wants_recycle(self, vitals: Vitals) -> bool:
        jobs, rss = self._settings.recycle_jobs, self._settings.recycle_rss_bytes
        return 0 < jobs <= vitals.ended or 0 < rss <= vitals.rss_bytes

    def draining(self, seconds_left: float) -> None:
        """Report the drain; `seconds_left` is the grace for running jobs."""
        if self._send_message is not None:
            running = len(self._attempts.running)
            left = max(seconds_left, 0.0)
            self._send_message(
                ProcessMessage(word="draining", running=running, grace_seconds=left)
            )

    def drain_commanded(self) -> None:
        """Report a drain by command, so that the supervisor starts no successor."""
        if self._send_message is not None:
            self._send_message(ProcessMessage(word="ordered"))


class Heartbeat:
    """Renews the lease of `identity` every `interval_seconds`."""

    def __init__(  # noqa: PLR0913 - a loop and its callbacks
        self,
        *,
        store: Store,
        clock: Clock,
        emit: Emit,
        identity: WorkerIdentity,
        lease_seconds: float,
        interval_seconds: float,
        on_cancels: Callable[[list[tuple[bytes, int]]], None],
        on_lost: Callable[[int], None],
        on_paused: Callable[[frozenset[str]], None],
        on_commands: Callable[[Sequence[Command]], None],
        measure: Callable[[], Vitals],
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._interval_seconds = interval_seconds
        self._margin_seconds = min(5.0, lease_seconds / 6)
        self._is_write_blocked = False  # no worker could renew at the last check
        self._has_timed_out = False  # the last renewal waited for its whole timeout
        self._known_health, self._known_at = UNKNOWN_HEALTH, -math.inf
        self._on_cancels = on_cancels
        self._on_lost = on_lost
        self._on_paused = on_paused
        self._on_commands = on_commands
        self._measure = measure

    async def run(self) -> None:
        """Renew until cancelled."""
        took_seconds = 0.0
        while True:
            pause = max(0.0, self._interval_seconds - took_seconds)
            if self._is_write_blocked:
                # Others renew as soon as writing is possible again, and may then take the
                # jobs of a lease that has expired. After a timeout, wait for the writer
                # again at once.
                pause = 0.0 if self._has_timed_out else pause / BLOCKED_TRIES
            left = self._left_seconds()
            await self._clock.sleep(min(pause, left if left > 0 else NEVER))
            began = self._clock.monotonic()
            await self.renew()
            took_seconds = self._clock.monotonic() - began

    async def renew(self) -> None:
        """Renew once, and act on the result."""
        me, vitals = self._identity.id, self._measure()
        if not me:  # fenced, and not registered again yet
            self._is_write_blocked = False  # else `run` would pause too little
            return
        error = await self._try(me, self._timeout_seconds(), vitals)
        self._has_timed_out = isinstance(error, TimeoutError)
        if error is not None:
            await self._renewal_failed(me, error)

    async def give_up(self) -> None:
        """Fence the worker at its deadline, because renewals have ended."""
        while (left := self._left_seconds()) > 0:
            await self._clock.sleep(left)
        self._on_lost(self._identity.id)

    def _timeout_seconds(self) -> float:
        """Return how long a renewal may take.

        Past the deadline it is a quarter of the margin: after a suspended process wakes up,
        a working store answers immediately, and the steps that follow must end before the
        lease does. While writes are blocked it waits for the writer instead.
        """
        left = self._left_seconds()
        if self._is_write_blocked:
            # Others may be able to write again. While the lease lasts, the steps that
            # follow must fit into it. After that, the process that has waited longest
            # writes first.
            left += 3 * self._margin_seconds / 8
            return min(self._interval_seconds, left if left > 0 else NEVER)
        return min(self._interval_seconds, max(left, self._margin_seconds / 4))

    def _left_seconds(self) -> float:
        """Return seconds until the worker must fence itself; negative after that."""
        deadline = (
            self._identity.renewed_at + self._lease_seconds - self._margin_seconds
        )
        return deadline - self._clock.monotonic()

    async def _try(
        self, me: int, timeout_seconds: float, vitals: Vitals | None = None
    ) -> Exception | None:
        """Renew in the store; return the error, or None."""
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(timeout_seconds):
                renewed = await self._store.renew(me, self._lease_seconds, vitals)
        except (StoreError, TimeoutError) as error:
            return error
        if me == self._identity.id:
            self._answered(me, began, renewed)
        return None

    def _answered(self, me: int, began: float, renewed: Renewed) -> None:
        if not renewed.alive:
            self._on_lost(me)
            return
        if not self._identity.is_fresh(began, self._interval_seconds):
            self._identity.resumed_at = self._clock.monotonic()
        self._identity.renewed_at = began
        self._is_write_blocked = False
        if renewed.cancels:
            self._on_cancels(renewed.cancels)
        if renewed.paused:
            self._on_paused(renewed.paused)
        if renewed.commands:
            self._on_commands(renewed.commands)

    async def _renewal_failed(self, me: int, error: Exception) -> None:
        age = self._clock.monotonic() - self._identity.renewed_at
        text = str(error) or type(error).__name__
        self._emit("lease.unrenewed", worker=me, seconds=round(age, 1), error=text)
        stall, behind_seconds = await self._health(me)
        if stall is not None:
            self._emit("store.stalled", pid=stall.pid, seconds=round(stall.seconds, 1))
        is_contested = self._is_contested(behind_seconds)
        self._is_write_blocked = not is_contested
        if self._left_seconds() > 0 or me != self._identity.id:
            return
        # Others can renew: try once more, because the block may have just ended.
        if is_contested and await self._try(me, self._margin_seconds / 2) is not None:
            self._on_lost(me)

    def _is_contested(self, behind_seconds: float) -> bool:
        """Whether another worker will still be fresh when our lease ends."""
        fresh_seconds = FRESH_RENEWALS * self._interval_seconds
        return behind_seconds > self._lease_seconds - fresh_seconds

    async def _health(self, me: int) -> Health:
        """Ask the store; if it cannot tell now, use an answer of the last interval.

        That answer is good: a worker that has renewed since then, after a gap, rescues
        nobody for more than one interval.
        """
        seconds = max(self._left_seconds(), self._margin_seconds / 8)
        try:
            async with asyncio.timeout(min(self._interval_seconds, seconds)):
                self._known_health = await self._store.health(me)
            self._known_at = self._clock.monotonic()
        except (StoreError, TimeoutError):
            if self._clock.monotonic() - self._known_at > self._interval_seconds:
                self._known_health = UNKNOWN_HEALTH
        return self._known_health
