"""The soft bound: queues that nobody bounded are looked at about once a second.

A look may take long where millions of jobs wait, so rests are at least twenty times as
long as the look before: it never takes more than a twentieth of the reader's time.
"""

from dataclasses import dataclass

from durio.ports.clock import Clock
from durio.ports.upkeep import Upkeep

REST_SECONDS = 1.0
REST_FACTOR = 20
OFF_SECONDS = 60.0  # without a soft bound only old marks have to go


@dataclass(frozen=True, slots=True)
class SoftBound:
    """Marks queues beyond the soft bound: enqueues wait until they are below again."""

    store: Upkeep
    clock: Clock
    soft_max: int
    namespace: str

    async def turn(self) -> float:
        """One look; how long to rest."""
        began = self.clock.monotonic()
        await self.store.measure(self.soft_max, namespace=self.namespace)
        took = self.clock.monotonic() - began
        return max(REST_SECONDS if self.soft_max else OFF_SECONDS, took * REST_FACTOR)
