"""Reading the store: one job, many jobs, lanes, workers. Never counts by scanning rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from durio.model.job import Record


class Query(NamedTuple):
    """Which jobs; None does not narrow."""

    namespace: str | None = None
    states: tuple[int, ...] | None = None
    lane: str | None = None
    task: str | None = None


class Page(NamedTuple):
    """Some records, newest first, and where to go on."""

    records: list[Record]
    cursor: str | None


class WorkerRow(NamedTuple):
    """A registered worker."""

    id: int
    info: Mapping[str, Any]  # the fields of WorkerInfo but tasks, and started_at
    lease_seconds_left: float
    running: int


class LaneRow(NamedTuple):
    """A queue that exists."""

    name: str
    paused: bool


class Browse(Protocol):
    """Read-only questions."""

    async def get(self, ids: Sequence[bytes]) -> list[Record]:
        """The stored records of these ids; unknown ones are missing."""
        ...

    async def states(self, ids: Sequence[bytes]) -> dict[bytes, int]:
        """Only the states: what waiters poll."""
        ...

    async def find(self, query: Query, *, limit: int, cursor: str | None) -> Page:
        """Newest first, by keyset, at most 200 a page."""
        ...

    async def lanes(self, namespace: str, *, busy: bool = False) -> list[LaneRow]:
        """Every queue of a namespace that was ever used, or those with jobs that wait.

        The busy ones cost what they are, however many others there ever were.
        """
        ...

    async def counts(self, namespace: str) -> dict[str, dict[int, int]]:
        """Lane -> state -> jobs, for states that are not final, and dead."""
        ...

    async def workers(self, namespace: str | None) -> list[WorkerRow]:
        """Who is registered."""
        ...

    async def tasks(self, namespace: str) -> dict[str, dict[str, Any]] | None:
        """What workers published about their tasks; None: nothing is known."""
        ...
