"""Delete final jobs past their retention, in small batches, never on the hot path."""

from dataclasses import dataclass

from durio.ports.clock import Clock
from durio.ports.upkeep import Upkeep
from durio.telemetry.emit import Emit

# With a backlog the pause is three times as long as the batch took, at most 0.5 s: pruning
# uses 25 % of the store's time, or more if a batch is slow. A fixed pause would limit the
# rate, and a store that finishes jobs faster would fill the disk.
PAUSE_SHARE, PAUSE_SECONDS_MAX = 3.0, 0.5
IDLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Pruner:
    """Deletes jobs past their age or count, then frees the space."""

    store: Upkeep
    clock: Clock
    emit: Emit
    dead_count: int
    batch_max: int = 2000

    async def turn(self) -> float:
        """Prune one batch; return the seconds to sleep."""
        began = self.clock.monotonic()
        pruned = await self.store.prune(self.batch_max, dead_count=self.dead_count)
        if pruned:
            self.emit("jobs.pruned", count=pruned)
        if pruned >= self.batch_max:
            took = self.clock.monotonic() - began
            return min(PAUSE_SHARE * took, PAUSE_SECONDS_MAX)
        await self.store.tidy()
        return IDLE_SECONDS
