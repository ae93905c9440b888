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

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    def start(self, seconds: float) -> None:
        """Settle after this time, unless that is under way."""
        if self._running is None:
            loop = asyncio.get_running_loop()
            self._running = loop.create_task(self._settle(seconds))

    async def _settle(self, seconds: float | None) -> None:
        try:
            while seconds is not None:
                await self._clock.sleep(seconds)
                seconds = (await self._store.settle(SETTLED_MAX)).next_due_seconds
        except StoreError as error:
            self._emit("store.failed", call="settle", error=str(error))
        finally:
            self._running = None
