"""Read the store: one job, many jobs, lanes, workers; counts never scan the history."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from durio.model.ids import format_ids, id_text
from durio.model.job import RUNNING, STATE_BY_CODE, StoredJob
from durio.model.names import known_as
from durio.model.quantities import format_duration
from durio.model.queues import serves
from durio.model.system_tasks import is_system_task
from durio.ports.lease import Vitals


class Query(NamedTuple):
    """A filter for jobs; a field that is None matches every job."""

    namespace: str | None = None
    states: tuple[int, ...] | None = None
    lane: str | None = None
    task: str | None = None
    reason: str | None = None  # why it is dead
    # Part of the type or message of its last error; case is ignored.
    error: str | None = None
    # Seconds since 1970: when the job ended or, if it has not ended, was created.
    before: float | None = None
    after: float | None = None
    worker: int | None = None  # running under this worker
    ids: tuple[bytes, ...] | None = None
    # A range of ids, both ends included; an id begins with the time at which it was made.
    first_id: bytes | None = None
    last_id: bytes | None = None

    @property
    def has_id_range(self) -> bool:
        """Whether it asks for a range of ids. Its pages are in the order of ids."""
        return self.first_id is not None or self.last_id is not None

    @property
    def possible_states(self) -> tuple[int, ...] | None:
        """The states asked for. With a worker, only `running`: no other job has a worker."""
        if self.worker is None:
            return self.states
        return (RUNNING,) if self.states is None or RUNNING in self.states else ()

    def in_words(self) -> str:
        """Return the filter as text for the audit of a bulk action."""
        states = "all" if self.states is None else states_in_words(self.states)
        parts = [f"{states} jobs"]
        whose = self.lane or (self.namespace and f"{self.namespace}:*")
        parts += [f"of {whose}"] if whose else []
        parts += [f"task {self.task}"] if self.task is not None else []
        parts += [f"reason {self.reason}"] if self.reason is not None else []
        parts += [f"error {self.error!r}"] if self.error is not None else []
        parts += [f"worker {self.worker}"] if self.worker is not None else []
        parts += [f"ids {format_ids(self.ids)}"] if self.ids is not None else []
        if self.first_id is not None:
            parts.append(f"from id {id_text(self.first_id)}")
        if self.last_id is not None:
            parts.append(f"to id {id_text(self.last_id)}")
        if self.before is not None:
            parts.append(f"before {moment_in_words(self.before)}")
        if self.after is not None:
            parts.append(f"after {moment_in_words(self.after)}")
        return " ".join(parts)


class Page(NamedTuple):
    """Some jobs, newest first, and the cursor of the next page."""

    jobs: list[StoredJob]
    cursor: str | None
    ids: Sequence[bytes] = ()  # in place of the records, for a query with a mark


class WorkerRow(NamedTuple):
    """A registered worker."""

    id: int
    info: Mapping[str, Any]  # the fields of WorkerInfo, started_at and lease_seconds
    # Negative: expired for that time. 0: expired, but not known since when.
    lease_seconds_left: float
    running: int
    vitals: Vitals | None = None  # None: not sent yet

    def serves(self, queue: str) -> bool:
        """Whether it has a valid lease and serves this queue."""
        return self.lease_seconds_left > 0 and serves(self.info["queues"], queue)

    def has_task(self, task: str) -> bool:
        """Whether its code has this task; also true if it is not known."""
        tasks = self.info.get("tasks")
        return (
            tasks is None or known_as(task, tasks) is not None or is_system_task(task)
        )

    @property
    def is_draining(self) -> bool:
        """Whether it said with its last heartbeat that it claims no more jobs."""
        return self.vitals is not None and self.vitals.draining

    def lease_text(self) -> str:
        """Return the state of the lease, for people."""
        left = self.lease_seconds_left
        if left > 0:
            return f"good for {format_duration(left)}"
        return f"over for {format_duration(-left)}" if left < 0 else "over"


class LaneRow(NamedTuple):
    """A queue that exists."""

    name: str
    paused: bool
    closed: bool = False
    maxsize: int | None = None  # the bound in force; None: only the soft bound
    is_manual: bool = False  # the bound was set by an operator
    is_over: bool = False  # above the soft bound at the last check
    # Read only on request:
    counts: Mapping[int, int] = {}  # jobs by state, for live states and dead
    oldest_ready_at: float | None = None  # absolute seconds
    head_tasks: Mapping[str, int] = {}  # jobs by task
    before_gates: int = 0  # blocked jobs that stand before a gate

    def jobs(self, *states: int) -> int:
        """Return the number of jobs in these states."""
        return sum(self.counts.get(state, 0) for state in states)


class AuditLine(NamedTuple):
    """An action of an operator."""

    at: float
    who: str
    verb: str
    target: str
    jobs: int
    # JSON with where the change came from and what it changed; empty for most lines.
    details: str = ""
    number: int = 0  # later lines have greater numbers

    def read_details(self) -> dict[str, Any] | None:
        """Return the details as values; None if there are none."""
        return msgspec.json.decode(self.details) if self.details else None


class DeathCount(NamedTuple):
    """How many jobs have died of an error so far."""

    lane: str
    task: str
    error_type: str
    dead: int


class GateRow(NamedTuple):
    """A gate that exists."""

    name: str
    cap: int | None
    used: int  # places that jobs hold
    rate: float | None  # tokens per second
    burst: float
    tokens: float  # now; below zero after a job that cost more than there was
    until: float | None  # closed before this time; absolute seconds
    waiting: int  # jobs that stand before it


class GatedJob(NamedTuple):
    """Where a job with gates is."""

    id: bytes
    gates: tuple[str, ...]  # names, in the order in which it passes them
    before: str | None  # it stands before this one
    holds: tuple[str, ...]  # it has a place at these


class Browse(Protocol):
    """Read-only queries."""

    async def get(self, ids: Sequence[bytes]) -> list[StoredJob]:
        """Return the jobs with these ids, in this order; unknown ids are left out."""
        ...

    async def states(
        self, ids: Sequence[bytes], *, waiting: bool = False
    ) -> dict[bytes, int]:
        """Return only the states of jobs, for callers that poll while they wait.

        `waiting`: a caller waits for these jobs to end. Then this raises StoreMoved if none
        of them is final and none ever will be, because the jobs have moved to another store
        for good.
        """
        ...

    async def ids_between(
        self, first: bytes, last: bytes, *, limit: int
    ) -> list[bytes]:
        """Return the ids from `first` to `last`, both included, newest first."""
        ...

    async def ahead(self, job_id: bytes, *, limit: int) -> int:
        """Return how many ready jobs of its queue are claimed before this one.

        It counts at most `limit`. For a job that is not ready: those that would be claimed
        before it.
        """
        ...

    async def find(
        self, query: Query, *, limit: int, cursor: str | None, mark: str | None = None
    ) -> Page:
        """Return jobs, newest first, at most 200 per page.

        `mark` is the result of a count. The page then has the ids of jobs of one state that
        are not beyond it, at most 1,000, in the order of the state's index: waiting jobs by
        queue, dead ones by the time of their death. A page reads a limited number of rows,
        so it may be short or empty and still have a cursor.
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
        gates: bool = False,
    ) -> list[LaneRow]:
        """Return every queue of a namespace that was ever used, with its settings, by name.

        `busy`: only queues with waiting jobs; other queues then cost nothing, whatever
        their number. `counts`: include the jobs by state. `oldest`: include the time since
        which the oldest ready job could have run, judged by the jobs at the head of the
        queue. `heads`: include the tasks of the waiting jobs at the heads of the queues;
        about this number of jobs is read, the same share of each queue. `gates`: include
        the number of jobs before gates.
        """
        ...

    async def workers(self, namespace: str | None) -> list[WorkerRow]:
        """Return the registered workers."""
        ...

    async def namespaces(self, kinds: Sequence[str] = ()) -> list[str]:
        """Return the namespaces that have a queue or a worker, sorted.

        And those with a record of one of these kinds: with `task`, of `task:<namespace>`.
        """
        ...

    async def tallies(self, namespace: str | None) -> list[DeathCount]:
        """Return the deaths so far by queue, task and type of error; None for every App."""
        ...

    async def gates(self, prefix: str, *, limit: int) -> list[GateRow]:
        """Return the gates whose names begin so, in the order of names.

        A gate that never had a cap, a rate or a closing time does not exist: jobs pass it.
        """
        ...

    async def gated(self, ids: Sequence[bytes]) -> list[GatedJob]:
        """Return where these jobs are, in this order.

        Jobs without gates, and those that have ended, are left out. A job keeps the gates that it was stored with, whatever its arguments or the code
        of its task say now.
        """
        ...

    async def audit(
        self, namespace: str | None, *, limit: int, before: int | None = None
    ) -> list[AuditLine]:
        """Return the actions of operators, newest first.

        `before`: only lines that were written before the line of this number.
        """
        ...

    async def write_refusal(self) -> str | None:
        """Return why the store takes no writes now; None if nothing says so."""
        ...


def states_in_words(states: Sequence[int]) -> str:
    return " or ".join(STATE_BY_CODE[state].value for state in states) or "no"


def moment_in_words(seconds: float) -> str:
    """Return the time in UTC, to the second, for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
