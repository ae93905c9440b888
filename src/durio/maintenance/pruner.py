"""Final jobs leave by retention: in small batches, never on the hot path."""

from dataclasses import dataclass

from durio.ports.upkeep import Upkeep
from durio.telemetry.emit import Emit

BUSY_SECONDS, IDLE_SECONDS = 0.2, 10.0


@dataclass(frozen=True, slots=True)
class Pruner:
    """Deletes what is past its age or count, then gives the space back."""

    store: Upkeep
    emit: Emit
    dead_count: int
    batch_max: int = 2000

    async def turn(self) -> float:
        """Prune one batch; how long to sleep."""
        pruned = await self.store.prune(self.batch_max, dead_count=self.dead_count)
        if pruned:
            self.emit("jobs.pruned", count=pruned)
        if pruned >= self.batch_max:
            return BUSY_SECONDS
        await self.store.tidy()
        return IDLE_SECONDS
