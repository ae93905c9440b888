"""Reading the store: one job, many jobs, lanes, workers. Never counts by scanning rows."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from durio.model.job import STATE_BY_CODE, StoredJob
from durio.model.quantities import format_duration
from durio.ports.lease import Vitals


class Query(NamedTuple):
    """Which jobs; None does not narrow."""

    namespace: str | None = None
    states: tuple[int, ...] | None = None
    lane: str | None = None
    task: str | None = None
    reason: str | None = None  # why it is dead
    error: str | None = None  # in the type or message of its last error, any case
    finished_before: float | None = None  # absolute seconds: dead for longer
    finished_after: float | None = None
    worker: int | None = None  # running under it

    def in_words(self) -> str:
        """For the audit: which jobs a bulk act was meant for."""
        states = "all" if self.states is None else states_in_words(self.states)
        parts = [f"{states} jobs"]
        whose = self.lane or (self.namespace and f"{self.namespace}:*")
        parts += [f"of {whose}"] if whose else []
        parts += [f"task {self.task}"] if self.task is not None else []
        parts += [f"reason {self.reason}"] if self.reason is not None else []
        parts += [f"error {self.error!r}"] if self.error is not None else []
        parts += [f"worker {self.worker}"] if self.worker is not None else []
        if self.finished_before is not None:
            parts.append(f"before {moment_in_words(self.finished_before)}")
        if self.finished_after is not None:
            parts.append(f"after {moment_in_words(self.finished_after)}")
        return " ".join(parts)


class Page(NamedTuple):
    """Some records, newest first, and where to go on."""

    jobs: list[StoredJob]
    cursor: str | None
    ids: Sequence[bytes] = ()  # instead of the records, for a query with a mark


class WorkerRow(NamedTuple):
    """A registered worker."""

    id: int
    info: Mapping[str, Any]  # the fields of WorkerInfo, and started_at
    lease_seconds_left: (
        float  # negative: over for so long; 0: over, not known since when
    )
    running: int
    vitals: Vitals | None = None  # None: not told yet

    def lease_text(self) -> str:
        """How the lease stands, for people."""
        left = self.lease_seconds_left
        if left > 0:
            return f"good for {format_duration(left)}"
        return f"over for {format_duration(-left)}" if left < 0 else "over"


class LaneRow(NamedTuple):
    """A queue that exists."""

    name: str
    paused: bool
    closed: bool = False
    maxsize: int | None = None  # what holds now; None: only the soft bound
    is_manual: bool = False  # the bound was set by a person
    is_over: bool = False  # seen beyond the soft bound
    # Only where it was asked for:
    counts: Mapping[int, int] = {}  # state -> jobs, of states not final and dead
    oldest_ready_at: float | None = None  # absolute seconds
    head_tasks: Mapping[str, int] = {}  # task -> jobs

    def jobs(self, *states: int) -> int:
        """Jobs in these states."""
        return sum(self.counts.get(state, 0) for state in states)


class AuditLine(NamedTuple):
    """What somebody did."""

    at: float
    who: str
    verb: str
    target: str
    jobs: int


class DeathCount(NamedTuple):
    """How many jobs ever died of an error: only grows, whatever becomes of them."""

    lane: str
    task: str
    error_type: str
    dead: int


class Browse(Protocol):
    """Read-only questions."""

    async def get(self, ids: Sequence[bytes]) -> list[StoredJob]:
        """The stored records of these ids; unknown ones are missing."""
        ...

    async def states(
        self, ids: Sequence[bytes], *, waiting: bool = False
    ) -> dict[bytes, int]:
        """Only the states: what waiters poll.

        `waiting`: somebody waits for their ends. StoreMoved where none of them is final
        and none will ever be, because the jobs have gone to another store for good.
        """
        ...

    async def find(
        self, query: Query, *, limit: int, cursor: str | None, mark: str | None = None
    ) -> Page:
        """Newest first, by keyset, at most 200 a page.

        `mark`: the answer of a count. The page has the ids of jobs of one state that are not
        beyond it, at most 1,000, in the order of the state's index: waiting jobs by queue,
        dead ones by the time of their death. A page may be empty and still have a cursor.
        """
        ...

    async def queues(
        self,
        namespace: str,
        *,
        busy: bool = False,
        counts: bool = False,
        oldest: bool = False,
        heads: int = 0,
    ) -> list[LaneRow]:
        """Every queue of a namespace that was ever used, with its settings, by name.

        `busy`: only those with waiting jobs; the others cost nothing then, however many
        there are. `counts`: with the jobs by state. `oldest`: with the time since when
        the oldest ready job could have run, judged by the jobs at the head of the queue.
        `heads`: with the tasks of the waiting jobs at the heads of the queues; about so
        many jobs are looked at, as many of each queue.
        """
        ...

    async def workers(self, namespace: str | None) -> list[WorkerRow]:
        """Who is registered."""
        ...

    async def tallies(self, namespace: str | None) -> list[DeathCount]:
        """Dead letters ever, by queue, task and type of error; None: of every App."""
        ...

    async def audit(self, namespace: str | None, *, limit: int) -> list[AuditLine]:
        """What people did, the newest first."""
        ...


def states_in_words(states: Sequence[int]) -> str:
    """Their names."""
    return " or ".join(STATE_BY_CODE[state].value for state in states) or "no"


def moment_in_words(seconds: float) -> str:
    """To the second, for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
