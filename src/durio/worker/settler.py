"""Go on with what an exchange has left: waiting jobs, and entries of locked logs."""

import asyncio

from durio.model.errors import StoreError
from durio.ports.clock import Clock
from durio.ports.upkeep import Upkeep
from durio.telemetry.emit import Emit

SETTLED_MAX = 1000  # jobs let go by one call


class Settler:
    """Calls `settle` until nothing is left; the leader does the same, less often."""

    def __init__(self, store: Upkeep, clock: Clock, emit: Emit) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._running: asyncio.Task[None] | None = None
        self._due_at = 0.0  # of the next call, by the monotonic clock

    def start(self, seconds: float) -> None:
        """Settle after this time, or earlier if that is under way."""
        due_at = self._clock.monotonic() + seconds
        if self._running is not None:
            if self._due_at <= due_at:
                return
            self._running.cancel()
        self._due_at = due_at
        loop = asyncio.get_running_loop()
        self._running = loop.create_task(self._settle(seconds))

    def stop(self) -> None:
        """End a wait for a gate."""
        if self._running is not None:
            self._running.cancel()

    async def _settle(self, seconds: float | None) -> None:
        try:
            while seconds is not None:
                await self._clock.sleep(seconds)
                self._due_at = 0.0  # a call is not cancelled
                seconds = (await self._store.settle(SETTLED_MAX)).next_due_seconds
                self._due_at = self._clock.monotonic() + (seconds or 0.0)
        except StoreError as error:
            self._emit("store.failed", call="settle", error=str(error))
        finally:
            if self._running is asyncio.current_task():
                self._running = None
