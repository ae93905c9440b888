"""Give the gates of limits the numbers that hold now, once a minute.

The first job that arrives at a gate makes it, with the numbers that its producer knows. A
producer of an older release, or one that has not read yet what was set by hand, makes gates
with older numbers. Without such gates a turn changes nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from durio.model.effects import Effects
from durio.model.limit_records import KnownLimit, change_of
from durio.ports.commit import ROWS_MAX, Commit

LOOK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LimitKeeper:
    """Keeps the gates of one App's limits."""

    store: Commit
    read: Callable[[], Awaitable[list[KnownLimit]]]

    async def turn(self) -> float:
        """Change the gates that differ; return the pause."""
        changes = [change_of(limit.gates, limit.choice) for limit in await self.read()]
        more = False
        for start in range(0, len(changes), ROWS_MAX):
            some = changes[start : start + ROWS_MAX]
            answer = await self.store.commit(Effects(gates=some))
            more = more or any(count >= ROWS_MAX for count in answer.gates)
        return 0.0 if more else LOOK_SECONDS
