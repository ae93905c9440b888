"""Read the logs that all plans of an App share, each entry until it has been handled.

The position in a log is a record. It is moved in the same commit as the last effect of its
entries, so another leader goes on from there.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from durio.model.effects import Effects, Put
from durio.model.job import StoredJob
from durio.ports.logs import Entry
from durio.ports.plan_reader import Position, read_position
from durio.ports.store import Store

BATCH_MAX = 500  # entries of one read

# Returns what is written with the new position; None: the entries are read again.
Handle = Callable[
    [Sequence[Entry], dict[bytes, StoredJob]], Coroutine[Any, Any, list[Put] | None]
]


@dataclass(slots=True)
class PlanLogReader:
    """Knows how far the logs of one App have been read."""

    store: Store
    namespace: str
    positions: dict[str, Position] = field(default_factory=dict[str, Position])
    # Logs with entries before this offset that are not needed any more.
    untrimmed: dict[str, int] = field(default_factory=dict[str, int])

    async def read(self, log: str, length: int, handle: Handle) -> bool:
        """Handle new entries of a log; return whether there were any."""
        position = self.positions.get(log)
        if position is None or position.offset < length:
            position = await read_position(self.store, self.namespace, log)
            self.positions[log] = position
            self.untrimmed[log] = position.offset
        if position.offset >= length:
            return False
        entries = await self.store.read_log(log, position.offset, limit=BATCH_MAX)
        if not entries:
            return False
        ids = [entry.job for entry in entries if entry.job is not None]
        jobs = {job.id: job for job in await self.store.get(ids)}
        puts = await handle(entries, jobs)
        if puts is None:
            return True
        after = entries[-1].offset + 1
        moved = position.moved_to(self.namespace, after)
        effects = Effects(puts=[*puts, moved])
        if (await self.store.commit(effects)).conflict is None:
            self.untrimmed[log] = after
        return True

    async def trim(self) -> None:
        """Delete entries that were handled, now and then: it writes the heads of logs."""
        while self.untrimmed:
            await self.store.trim_log(*self.untrimmed.popitem())
