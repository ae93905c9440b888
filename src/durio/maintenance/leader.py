"""Whose turn it is: one leader for upkeep, by a lease with a token that only grows.

The lease saves work, it does not keep safety: every upkeep statement is idempotent, so
two leaders at once (a paused one that wakes up) do no harm. Any worker may lead, because
hooks of a job that a rescue makes dead need the App's code. Any but one that cannot renew
its own lease of late: it does not judge the leases of others, so it must not keep those
from the turn that could.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from durio.maintenance.loop import run_forever
from durio.ports.clock import Clock
from durio.ports.lease import Lease
from durio.telemetry.emit import Emit


@dataclass(slots=True)
class Leader:
    """Tries to lead, and knows whether it does."""

    store: Lease
    clock: Clock
    emit: Emit
    worker_id: Callable[[], int]
    is_fresh: Callable[[], bool]  # whether our own lease was renewed of late
    name: str = "upkeep"
    lease_seconds: float = 10.0
    leads_until: float = 0.0

    async def run(self) -> None:
        """Take or renew the lease until cancelled."""
        await run_forever("leader", self.turn, self.clock, self.emit)

    async def turn(self) -> float:
        """Ask once; a third of the lease is left for the next time."""
        self.leads_until = await self._try_lead() if self.is_fresh() else 0.0
        return self.lease_seconds / 3 * (0.8 + 0.4 * self.clock.random())

    async def _try_lead(self) -> float:
        began = self.clock.monotonic()
        token = await self.store.lead(self.name, self.worker_id(), self.lease_seconds)
        return 0.0 if token is None else began + self.lease_seconds

    @property
    def leads(self) -> bool:
        """Whether it is our turn, by our own count from before the last answer."""
        return self.clock.monotonic() < self.leads_until

    def while_leading(
        self, turn: Callable[[], Awaitable[float]], idle_seconds: float
    ) -> Callable[[], Awaitable[float]]:
        """That turn, taken only while leading."""

        async def when_leading() -> float:
            return await turn() if self.leads else idle_seconds

        return when_leading
