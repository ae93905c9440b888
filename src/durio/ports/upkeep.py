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


class Upkeep(Protocol):
    """Run by whoever leads; two at once do no harm."""

    async def promote(self, limit: int) -> Promoted:
        """Scheduled -> ready for jobs that are due, oldest first, all namespaces."""
        ...

    async def rescue(
        self,
        limit: int,
        *,
        worker: int | None = None,
        namespace: str | None = None,
    ) -> Rescued:
        """Take back the jobs of workers whose lease is over, or of this `worker`.

        Each goes through the gate as lost. A worker's row goes with its last job.
        `namespace` leaves the workers of other Apps to these: their hooks are not ours.
        Only tests name a `worker`: it is a death that nobody has to wait for.
        """
        ...

    async def rescue_here(self, limit: int, *, namespace: str | None = None) -> Rescued:
        """The same for workers whose death can be seen on this very host."""
        ...

    async def rescue_orphans(self, limit: int) -> Rescued:
        """Running jobs whose worker does not exist: back, uncharged."""
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
