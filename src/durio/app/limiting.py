"""What an App has for limits: those set by hand, and what jobs with gates need."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from durio.app.locking import LockingApp
from durio.client.caller_transaction import open_before_tx
from durio.client.limit_store import declare_limits
from durio.client.manual_limits import ManualLimits
from durio.model.job import NewJob
from durio.ports.worker_protocol import GATES_PROTOCOL, require_workers

if TYPE_CHECKING:
    from durio.app.registry import Registry
    from durio.app.state import AppState
    from durio.ports.clock import Clock
    from durio.ports.handler import Handler
    from durio.ports.store import Store


class LimitingApp(LockingApp):
    """The part of an App that knows the limits of its jobs."""

    name: str
    registry: "Registry"
    _state: "AppState"

    @property
    def clock(self) -> "Clock":
        """The source of time."""
        raise NotImplementedError

    async def store(self) -> "Store":
        """Return the open store of this process."""
        raise NotImplementedError

    @property
    def manual_limits(self) -> ManualLimits:
        """The limits that were set by hand, as this process knows them."""
        return self._state.manual_limits

    async def refresh_limits(self) -> bool:
        """Read the limits that were set by hand; True if jobs have to be built again."""
        return await self.manual_limits.refresh(await self.store())

    def handler_of(self, task: str) -> "Handler | None":
        """Return the task's code; None if it is not loaded here."""
        return self.registry.by_name.find(task)

    async def declare_limits(self) -> None:
        """Write the limits of the code to the store, as a worker does at start."""
        declared = self.registry.limits
        if declared.templates:
            await declare_limits(
                await self.store(),
                self.name,
                declared.templates,
                declared.tasks,
                self.clock.now(),
            )

    async def prepare_gates(
        self, store: "Store", jobs: Sequence[NewJob], *, in_tx: bool = False
    ) -> None:
        """Wait until every live worker knows gates, if one of these jobs has any.

        A caller's transaction without an event loop cannot wait: `open_for_tx` does it before.
        """
        if not any(job.gates for job in jobs) or (in_tx and not has_loop()):
            return
        await self._require_gates(store, only_look=in_tx)

    async def open_for_tx(self) -> None:
        """Read all that a call in a transaction without an event loop needs."""
        store = await open_before_tx(self.store())
        limits = self.manual_limits
        if limits.is_due:
            await self.refresh_limits()
        if limits.is_used or self.registry.limits.templates:
            await self._require_gates(store, only_look=True)

    async def _require_gates(self, store: "Store", *, only_look: bool) -> None:
        await require_workers(
            store, self.name, self.clock, GATES_PROTOCOL, only_look=only_look
        )


def has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
