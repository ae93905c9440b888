"""How a worker is: measured with each heartbeat, told to the store and to its supervisor.

The heartbeat: renews the lease, brings cancels, and knows when to give up.

It runs beside the worker's loop (see ports/executor.Aside), so that a blocked event loop
does not cost a worker its jobs. Its deadline counts from *before* the last good renewal:
at lease minus a margin it fences the worker itself, before anybody else may take its jobs.
No call may carry it past that: a store that hangs is given the time that is left.

When nobody can write (a full disk, a stopped writer) nobody can take them either. A store
that can tell says so, and the worker keeps its jobs and outcomes until it can. A renewal
that waits is followed by the next one at once, so that it is the first thing to be written
when writing is possible again.
"""

import asyncio
from collections.abc import Callable, Sequence, Sized
from typing import Protocol

from durio.model.errors import StoreError
from durio.model.settings import WorkerSettings
from durio.ports.clock import Clock
from durio.ports.executor import ChildVitals
from durio.ports.fleet import ProcessMessage, SendProcessMessage
from durio.ports.lease import Command, Renewed, Vitals
from durio.ports.store import Store
from durio.telemetry.emit import Emit
from durio.worker.deadline import NEVER
from durio.worker.worker_config import WorkerIdentity

NO_CHILDREN = ChildVitals(0.0, 0, 0)


class ProcessUsage(Protocol):
    """What this process uses."""

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        ...

    def rss_bytes(self) -> int:
        """Resident memory now."""
        ...


class AttemptCounts(Protocol):
    """The attempts of a worker."""

    @property
    def running(self) -> Sized:
        """Those under way."""
        ...

    @property
    def ended(self) -> int:
        """How many have ended."""
        ...


class VitalsReporter:
    """Measures one worker. Nobody who minds it: nobody is told but the store."""

    def __init__(
        self,
        settings: WorkerSettings,
        usage: ProcessUsage,
        attempts: AttemptCounts,
        send_message: SendProcessMessage | None,
        measure_children: Callable[[], ChildVitals] | None,
    ) -> None:
        self._settings = settings
        self._usage = usage
        self._attempts = attempts
        self._send_message = send_message
        self._measure_children = measure_children or (lambda: NO_CHILDREN)

    def ready(self, tasks: int) -> None:
        """It has a lease and claims."""
        if self._send_message is not None:
            settings = self._settings
            note = ProcessMessage(
                word="ready",
                tasks=tasks,
                grace_seconds=settings.grace_seconds,
                lease_seconds=settings.lease_seconds,
            )
            self._send_message(note)

    def measure(self) -> Vitals:
        """One beat; from the heartbeat's thread."""
        children = self._measure_children()
        vitals = Vitals(
            round(self._usage.cpu_seconds() + children.cpu_seconds, 3),
            self._usage.rss_bytes() + children.rss_bytes,
            self._attempts.ended,
            children.count,
        )
        if self._send_message is not None:
            note = ProcessMessage(
                word="beat",
                running=len(self._attempts.running),
                rss_bytes=vitals.rss_bytes,
                wants_recycle=self._wants_recycle(vitals),
            )
            self._send_message(note)
        return vitals

    def _wants_recycle(self, vitals: Vitals) -> bool:
        jobs, rss = self._settings.recycle_jobs, self._settings.recycle_rss_bytes
        return 0 < jobs <= vitals.ended or 0 < rss <= vitals.rss_bytes

    def draining(self, seconds_left: float) -> None:
        """No more claims, and so long is left for what runs."""
        if self._send_message is not None:
            running = len(self._attempts.running)
            left = max(seconds_left, 0.0)
            self._send_message(
                ProcessMessage(word="draining", running=running, grace_seconds=left)
            )

    def drain_commanded(self) -> None:
        """Somebody asked for a drain through the store: nobody is to come after us."""
        if self._send_message is not None:
            self._send_message(ProcessMessage(word="ordered"))


class Heartbeat:
    """Renews the lease of `me` every few seconds."""

    def __init__(  # noqa: PLR0913 - a loop and whom it tells
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
        self._is_write_blocked = False  # nobody could write when we last asked
        self._has_timed_out = False  # in line, as long as it had patience
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
            if self._is_write_blocked and self._has_timed_out:
                pause = 0.0  # back in line, also where its patience was short
            left = self._left_seconds()
            await self._clock.sleep(min(pause, left if left > 0 else NEVER))
            began = self._clock.monotonic()
            await self.renew()
            took_seconds = self._clock.monotonic() - began

    async def renew(self) -> None:
        """One renewal, and what follows from its answer."""
        me, vitals = self._identity.id, self._measure()
        if not me:  # fenced, and not registered anew yet
            return
        error = await self._try(me, self._timeout_seconds(), vitals)
        self._has_timed_out = isinstance(error, TimeoutError)
        if error is not None:
            await self._renewal_failed(me, error)

    async def give_up(self) -> None:
        """Nobody renews any more: the jobs are ours until our deadline, not longer."""
        while (left := self._left_seconds()) > 0:
            await self._clock.sleep(left)
        self._on_lost(self._identity.id)

    def _timeout_seconds(self) -> float:
        """How long a renewal may take; past the deadline hardly any, or it waits in line.

        Hardly any, for whoever slept over its deadline finds a store that answers at
        once; what follows must be over before the lease is.
        """
        left = self._left_seconds()
        if self._is_write_blocked:
            # Others may have begun to write since: while the lease lasts, what follows
            # must fit into it. After that, whoever waits in line is the first to write.
            left += 3 * self._margin_seconds / 8
            return min(self._interval_seconds, left if left > 0 else NEVER)
        return min(self._interval_seconds, max(left, self._margin_seconds / 4))

    def _left_seconds(self) -> float:
        """Until the worker must be sure that its jobs are still its own."""
        deadline = (
            self._identity.renewed_at + self._lease_seconds - self._margin_seconds
        )
        return deadline - self._clock.monotonic()

    async def _try(
        self, me: int, timeout_seconds: float, vitals: Vitals | None = None
    ) -> Exception | None:
        """Ask the store; what went wrong, if anything did."""
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
        if began - self._identity.renewed_at > 2 * self._interval_seconds:
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
        told = str(error) or type(error).__name__
        self._emit("lease.unrenewed", worker=me, seconds=round(age, 1), error=told)
        stall = self._store.stall()
        if stall is not None:
            self._emit("store.stalled", pid=stall.pid, seconds=round(stall.seconds, 1))
        # Asked each time: what counts is whether others could write of late.
        contested = await self._is_contested(me)
        self._is_write_blocked = not contested
        if self._left_seconds() > 0 or me != self._identity.id:
            return
        # Others write: so may we, perhaps since a moment ago.
        if contested and await self._try(me, self._margin_seconds / 2) is not None:
            self._on_lost(me)

    async def _is_contested(self, me: int) -> bool:
        seconds = max(self._left_seconds(), self._margin_seconds / 8)
        try:
            async with asyncio.timeout(min(self._interval_seconds, seconds)):
                return await self._store.is_contested(me)
        except (StoreError, TimeoutError):
            return True
