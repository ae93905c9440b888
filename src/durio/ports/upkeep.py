"""What keeps a store healthy: promote, rescue, prune. All idempotent, all bounded."""

from typing import NamedTuple, Protocol

from durio.model.outcome import RescuedJob


class Promoted(NamedTuple):
    """Scheduled jobs whose time came."""

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    next_due_seconds: float | None  # None: nothing is scheduled


class Rescued(NamedTuple):
    """Workers found dead, and where their jobs went."""

    workers: list[int]
    left: list[RescuedJob]
    more: bool = False


class ExpiredLeases(NamedTuple):
    """Workers whose lease is over."""

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
    """Run by whoever leads; two at once do no harm."""

    async def promote(self, limit: int) -> Promoted:
        """Scheduled -> ready for jobs that are due, oldest first, all namespaces."""
        ...

    async def rescue(self, limit: int, scope: RescueScope) -> Rescued:
        """Take back the jobs of lost workers, `limit` at most.

        Each job ends its attempt as lost. A worker's row goes with its last job. Orphans
        go back without a loss: what became of their workers is not known.
        """
        ...

    async def prune(self, limit: int, *, dead_count: int) -> int:
        """Delete final jobs past their retention, and expired keys; how many went.

        The newest `dead_count` dead jobs stay whatever their age. A store that gives up
        whole days at once may say about how many a large one held.
        """
        ...

    async def measure(self, soft_max: int, *, namespace: str) -> None:
        """Mark queues beyond the soft bound, and take the mark from those below it.

        `namespace` leaves the queues of other Apps to these: their bound is not ours.

        Writes only where a mark changes; queues with a bound of their own have none.
        """
        ...

    async def tidy(self) -> None:
        """Give space back and shorten logs: cheap, and only when idle."""
        ...
