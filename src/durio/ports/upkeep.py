"""Upkeep of a store: promote, rescue, prune. All calls are idempotent and bounded."""

from typing import NamedTuple, Protocol

from durio.model.outcome import RescuedJob


class Promoted(NamedTuple):
    """Scheduled jobs that became due."""

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    next_due_seconds: float | None  # None: nothing is scheduled


class Rescued(NamedTuple):
    """Workers found dead, and where their jobs went."""

    workers: list[int]
    left: list[RescuedJob]
    more: bool = False


class ExpiredLeases(NamedTuple):
    """Workers whose lease has expired."""

    namespace: str | None = None  # None: of every App


class DeadOnThisHost(NamedTuple):
    """Workers whose death can be seen on this host, whatever their lease says."""

    namespace: str | None = None


class Orphans(NamedTuple):
    """Running jobs whose worker does not exist."""


class OneWorker(NamedTuple):
    """This worker, dead or not; only tests name one."""

    id: int


RescueScope = ExpiredLeases | DeadOnThisHost | Orphans | OneWorker


class Upkeep(Protocol):
    """The leader calls this; two leaders at once do no harm."""

    async def promote(self, limit: int) -> Promoted:
        """Scheduled -> ready for jobs that are due, oldest first, all namespaces."""
        ...

    async def rescue(self, limit: int, scope: RescueScope) -> Rescued:
        """Take back the jobs of lost workers, at most `limit`.

        Each job ends its attempt as lost. A worker's row is deleted with its last job.
        Orphans go back without a loss: what happened to their workers is not known.
        """
        ...

    async def prune(self, limit: int, *, dead_count: int) -> int:
        """Delete final jobs past retention, and expired keys; returns how many.

        The newest `dead_count` dead jobs stay at any age. A store that drops whole days
        at once may return an estimate for a large day.
        """
        ...

    async def measure(self, soft_max: int, *, namespace: str) -> None:
        """Mark queues above the soft bound, and clear the mark of those below it.

        Only queues of `namespace` are checked: other Apps have their own soft bound.

        Writes only where a mark changes; queues with a bound of their own have no mark.
        """
        ...

    async def tidy(self) -> None:
        """Give space back and shorten logs. Cheap; called only when idle."""
        ...
