"""Elect one leader for upkeep, by a lease with an increasing token.

The lease saves work; safety does not depend on it. Every upkeep statement is idempotent, so
two leaders at the same time (a suspended one that wakes up) do no harm. Any worker may
lead, because hooks of a job that a rescue makes dead need the App's code. The exception is
a worker that could not renew its own lease recently: it does not rescue, so it must leave
the lead to a worker that can.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from durio.maintenance.loop import run_forever
from durio.ports.clock import Clock
from durio.ports.lease import Lease
from durio.telemetry.emit import Emit


@dataclass(slots=True)
class Leader:
    """Tries to become the leader, and knows whether it is."""

    store: Lease
    clock: Clock
    emit: Emit
    worker_id: Callable[[], int]
    is_fresh: Callable[[], bool]  # whether our own lease was renewed recently
    name: str = "upkeep"
    lease_seconds: float = 10.0
    leads_until: float = 0.0

    async def run(self) -> None:
        await run_forever("leader", self.turn, self.clock, self.emit)

    async def turn(self) -> float:
        """Try once to become or stay leader; return the pause, about a third of the lease."""
        self.leads_until = await self._try_lead() if self.is_fresh() else 0.0
        return self.lease_seconds / 3 * (0.8 + 0.4 * self.clock.random())

    async def _try_lead(self) -> float:
        began = self.clock.monotonic()
        token = await self.store.lead(self.name, self.worker_id(), self.lease_seconds)
        return 0.0 if token is None else began + self.lease_seconds

    @property
    def leads(self) -> bool:
        """Whether we lead; counted from before the last request, so never too long."""
        return self.clock.monotonic() < self.leads_until

    def while_leading(
        self, turn: Callable[[], Awaitable[float]], idle_seconds: float
    ) -> Callable[[], Awaitable[float]]:
        """Return a turn that runs `turn` while leading, and else sleeps `idle_seconds`."""

        async def when_leading() -> float:
            return await turn() if self.leads else idle_seconds

        return when_leading
