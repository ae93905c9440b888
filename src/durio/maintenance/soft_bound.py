"""The soft bound: measure queues without a bound of their own, about once a second.

With millions of waiting jobs a measurement may take long. So the pause is at least 20 times
as long as the measurement, which uses at most 5 % of the reader's time.
"""

from dataclasses import dataclass

from durio.ports.clock import Clock
from durio.ports.upkeep import Upkeep

REST_SECONDS = 1.0
REST_FACTOR = 20
OFF_SECONDS = 60.0  # without a soft bound only old marks are removed


@dataclass(frozen=True, slots=True)
class SoftBound:
    """Marks queues above the soft bound; enqueues into them wait."""

    store: Upkeep
    clock: Clock
    soft_max: int
    namespace: str

    async def turn(self) -> float:
        """Measure once; return the seconds to sleep."""
        began = self.clock.monotonic()
        await self.store.measure(self.soft_max, namespace=self.namespace)
        took = self.clock.monotonic() - began
        return max(REST_SECONDS if self.soft_max else OFF_SECONDS, took * REST_FACTOR)
