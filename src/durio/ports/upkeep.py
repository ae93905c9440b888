"""Upkeep of a store: promote, rescue, prune.

All calls are idempotent, and each does a limited amount of work.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from durio.model.outcome import KeepRule, RescuedJob


class Promoted(NamedTuple):
    """The result of promoting scheduled jobs that became due."""

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    next_due_seconds: float | None  # None: no job is scheduled


class Settled(NamedTuple):
    """The result of going on with what earlier transactions have left."""

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    next_due_seconds: float | None  # None: nothing is left
    is_locked: bool = False  # another transaction has locked something of the rest

    @property
    def has_left(self) -> bool:
        """Whether to call again now; a gate that only time opens is no reason."""
        return bool(self.count) or self.is_locked or self.next_due_seconds == 0.0


class Rescued(NamedTuple):
    """Workers found dead, and what became of their jobs."""

    workers: list[int]
    left: list[RescuedJob]
    more: bool = False


class ExpiredLeases(NamedTuple):
    """Workers whose lease has expired."""

    namespace: str | None = None  # None: workers of every App


class DeadOnThisHost(NamedTuple):
    """Workers whose death can be seen on this host, whatever their lease says."""

    namespace: str | None = None


class Orphans(NamedTuple):
    """Running jobs whose worker does not exist."""


class OneWorker(NamedTuple):
    """One worker, dead or not; only tests use this."""

    id: int


RescueScope = ExpiredLeases | DeadOnThisHost | Orphans | OneWorker


class Upkeep(Protocol):
    """Upkeep that the leader calls; two leaders at the same time do no harm."""

    async def promote(self, limit: int) -> Promoted:
        """Make due scheduled jobs of all namespaces ready, oldest first."""
        ...

    async def rescue(self, limit: int, scope: RescueScope) -> Rescued:
        """Take back the jobs of lost workers, at most `limit`.

        Each job ends its attempt as lost. A worker's row is deleted with its last job.
        Orphans go back without a loss, because it is not known what happened to their
        workers.
        """
        ...

    async def settle(self, limit: int) -> Settled:
        """Let jobs go whose wait for a log is over, or that may pass a gate, at most `limit`.

        Ends of jobs do this themselves, each for at most 1,000 jobs; this goes on with the
        rest. It also appends entries that could not be appended at once. At a gate with a
        rate, or one that was closed, time alone lets jobs pass: `next_due_seconds` is not
        later than that.
        """
        ...

    async def keep_done(self, ids: Sequence[bytes], keep: KeepRule | None) -> None:
        """Let done jobs be deleted by this retention from now on; None: the common one.

        Other jobs are left as they are.
        """
        ...

    async def prune(self, limit: int, *, dead_count: int) -> int:
        """Delete final jobs past retention, and expired keys; return how many.

        Gates without a use (`model.gate.is_idle`) are deleted too, but not counted.

        The newest `dead_count` dead jobs are kept at any age. A store that drops whole days
        may return an estimate for a large day.
        """
        ...

    async def measure(self, soft_max: int, *, namespace: str) -> None:
        """Mark queues above the soft bound, and clear the mark of those below it.

        Only queues of `namespace` are checked: other Apps have their own soft bound. A mark
        is written only if it changes; queues with a bound of their own have no mark.
        """
        ...

    async def tidy(self) -> None:
        """Free space and shorten logs; cheap, and called only when idle."""
        ...
