"""The heartbeat: renews the lease, brings cancels, and knows when to give up.

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
from collections.abc import Callable, Sequence

from durio.model.errors import StoreError
from durio.ports.clock import Clock
from durio.ports.lease import Order, Renewed, Vitals
from durio.ports.store import Store
from durio.telemetry.emit import Emit
from durio.worker.deadline import NEVER
from durio.worker.plan import Me


class Heartbeat:
    """Renews the lease of `me` every few seconds."""

    def __init__(  # noqa: PLR0913 - a loop and whom it tells
        self,
        *,
        store: Store,
        clock: Clock,
        emit: Emit,
        me: Me,
        lease_seconds: float,
        interval_seconds: float,
        on_cancels: Callable[[list[tuple[bytes, int]]], None],
        on_lost: Callable[[int], None],
        on_paused: Callable[[frozenset[str]], None],
        on_orders: Callable[[Sequence[Order]], None],
        measure: Callable[[], Vitals],
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._me = me
        self._lease_seconds = lease_seconds
        self._interval_seconds = interval_seconds
        self._margin_seconds = min(5.0, lease_seconds / 6)
        self._is_still = False  # nobody could write when we last asked
        self._has_waited = False  # in line, as long as it had patience
        self._on_cancels = on_cancels
        self._on_lost = on_lost
        self._on_paused = on_paused
        self._on_orders = on_orders
        self._measure = measure

    async def run(self) -> None:
        """Renew until cancelled."""
        took_seconds = 0.0
        while True:
            pause = max(0.0, self._interval_seconds - took_seconds)
            if self._is_still and self._has_waited:
                pause = 0.0  # back in line, also where its patience was short
            left = self._left_seconds()
            await self._clock.sleep(min(pause, left if left > 0 else NEVER))
            began = self._clock.monotonic()
            await self.renew()
            took_seconds = self._clock.monotonic() - began

    async def renew(self) -> None:
        """One renewal, and what follows from its answer."""
        me, vitals = self._me.id, self._measure()
        if not me:  # fenced, and not registered anew yet
            return
        error = await self._try(me, self._patience(), vitals)
        self._has_waited = isinstance(error, TimeoutError)
        if error is not None:
            await self._unrenewed(me, error)

    async def give_up(self) -> None:
        """Nobody renews any more: the jobs are ours until our deadline, not longer."""
        while (left := self._left_seconds()) > 0:
            await self._clock.sleep(left)
        self._on_lost(self._me.id)

    def _patience(self) -> float:
        """How long a renewal may take; past the deadline hardly any, or it waits in line.

        Hardly any, for whoever slept over its deadline finds a store that answers at
        once; what follows must be over before the lease is.
        """
        left = self._left_seconds()
        if self._is_still:
            # Others may have begun to write since: while the lease lasts, what follows
            # must fit into it. After that, whoever waits in line is the first to write.
            left += 3 * self._margin_seconds / 8
            return min(self._interval_seconds, left if left > 0 else NEVER)
        return min(self._interval_seconds, max(left, self._margin_seconds / 4))

    def _left_seconds(self) -> float:
        """Until the worker must be sure that its jobs are still its own."""
        deadline = self._me.renewed_at + self._lease_seconds - self._margin_seconds
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
        if me == self._me.id:
            self._answered(me, began, renewed)
        return None

    def _answered(self, me: int, began: float, renewed: Renewed) -> None:
        if not renewed.alive:
            self._on_lost(me)
            return
        if began - self._me.renewed_at > 2 * self._interval_seconds:
            self._me.resumed_at = self._clock.monotonic()
        self._me.renewed_at = began
        self._is_still = False
        if renewed.cancels:
            self._on_cancels(renewed.cancels)
        if renewed.paused:
            self._on_paused(renewed.paused)
        if renewed.orders:
            self._on_orders(renewed.orders)

    async def _unrenewed(self, me: int, error: Exception) -> None:
        age = self._clock.monotonic() - self._me.renewed_at
        told = str(error) or type(error).__name__
        self._emit("lease.unrenewed", worker=me, seconds=round(age, 1), error=told)
        stall = self._store.stall()
        if stall is not None:
            self._emit("store.stalled", pid=stall.pid, seconds=round(stall.seconds, 1))
        # Asked each time: what counts is whether others could write of late.
        contested = await self._is_contested(me)
        self._is_still = not contested
        if self._left_seconds() > 0 or me != self._me.id:
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
