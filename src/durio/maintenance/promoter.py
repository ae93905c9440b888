"""Make scheduled jobs ready when they are due.

Workers promote due jobs of their own lanes with every exchange. This loop promotes the jobs
of lanes that no worker claims from.
"""

from dataclasses import dataclass

from durio.ports.upkeep import Upkeep

SLEEP_MIN, SLEEP_MAX = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Promoter:
    """Promotes due jobs; sleeps until the next job is due, at most a second."""

    store: Upkeep
    batch_max: int = 1000

    async def turn(self) -> float:
        """Promote one batch; return the seconds to sleep."""
        promoted = await self.store.promote(self.batch_max)
        # A full batch means that there are more.
        if promoted.count >= self.batch_max:
            return 0.0
        due = promoted.next_due_seconds
        return SLEEP_MAX if due is None else min(max(due, SLEEP_MIN), SLEEP_MAX)
