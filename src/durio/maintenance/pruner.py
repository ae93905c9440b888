"""Final jobs leave by retention: in small batches, never on the hot path."""

from dataclasses import dataclass

from durio.ports.clock import Clock
from durio.ports.upkeep import Upkeep
from durio.telemetry.emit import Emit

# A backlog is pruned as fast as the store deletes, but for a quarter of its time only (more
# where a batch is slow: the pause has a bound). A fixed pause would be a rate, and whoever
# finishes more than that fills the disk.
PAUSE_SHARE, PAUSE_SECONDS_MAX = 3.0, 0.5
IDLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Pruner:
    """Deletes what is past its age or count, then gives the space back."""

    store: Upkeep
    clock: Clock
    emit: Emit
    dead_count: int
    batch_max: int = 2000

    async def turn(self) -> float:
        """Prune one batch; how long to sleep."""
        began = self.clock.monotonic()
        pruned = await self.store.prune(self.batch_max, dead_count=self.dead_count)
        if pruned:
            self.emit("jobs.pruned", count=pruned)
        if pruned >= self.batch_max:
            took = self.clock.monotonic() - began
            return min(PAUSE_SHARE * took, PAUSE_SECONDS_MAX)
        await self.store.tidy()
        return IDLE_SECONDS
