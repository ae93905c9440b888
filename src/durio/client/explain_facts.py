"""The facts from which `client/explain_rules.py` says why a job does not run."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from durio.client.explain_breaker import BreakerFacts
from durio.model.ids import id_text
from durio.model.job import StoredJob
from durio.model.names import queue_of
from durio.model.options import RowOptions
from durio.model.plan_record import PlanState
from durio.model.quantities import counted
from durio.model.timeout import TimeLimits
from durio.ports.browse import AuditLine, GateRow, LaneRow, WorkerRow

AHEAD_MAX = 1000  # jobs before it in its queue that are counted
NAMED_MAX = 3  # workers or jobs that a text names


class PlanParent(NamedTuple):
    """A job of a plan that another one waits for."""

    id: str
    state: int | None  # None: it is deleted
    is_ended: bool  # in the way that is waited for
    has_failed: bool
    plan: str | None = None  # the plan that has its place and has not ended


class PlanFacts(NamedTuple):
    """What is known about the plan of a job."""

    id: str
    state: PlanState | None = None  # None: the plan is not stored any more
    is_whole: bool = True  # False: it is being stored
    failed: str | None = None  # id of the job that failed first
    parents: Sequence[PlanParent] = ()  # of a blocked job
    # The nearest job before it that has not ended and is not blocked itself; at most one.
    roots: Sequence["JobFacts"] = ()


class GateHolder(NamedTuple):
    """A job that has a place at a gate, and whether its queue keeps it from running."""

    job: StoredJob
    queue: str
    is_paused: bool = False
    is_unserved: bool = False  # there are workers, and none for its queue

    @property
    def is_stuck(self) -> bool:
        return self.is_paused or self.is_unserved


class GateFacts(NamedTuple):
    """A gate of a job that lets nothing pass now."""

    limit: str  # its name
    key: str  # of the job; empty: one gate for all
    row: GateRow
    holders: list[GateHolder]  # those that were found
    cost: float = 1.0  # of the job
    is_budget: bool = False


class JobFacts(NamedTuple):
    """What a store and this process know about one job."""

    job: StoredJob
    now: float
    options: RowOptions
    max_attempts: int | None = None
    limits: TimeLimits | None = None  # None: its task is not loaded here
    is_loaded: bool = True  # whether the code loaded here has its task; or none is
    lane: LaneRow | None = None
    pause: AuditLine | None = None  # who paused its queue; None: not known
    workers: Sequence[WorkerRow] = ()  # of its App
    ahead: int = 0  # ready jobs that are claimed before it, at most AHEAD_MAX + 1
    known_tasks: Collection[
        str
    ] = ()  # loaded here or published, if no worker has its task
    plan: PlanFacts | None = None
    gates: Sequence[GateFacts] = ()  # that hold back a blocked job
    breaker: BreakerFacts | None = None  # of its task, if it is not closed

    @property
    def job_id(self) -> str:
        return id_text(self.job.id)

    @property
    def queue(self) -> str:
        return queue_of(self.job.lane)

    @property
    def live(self) -> list[WorkerRow]:
        """The workers whose lease has not ended."""
        return [row for row in self.workers if row.lease_seconds_left > 0]

    @property
    def serving(self) -> list[WorkerRow]:
        """The live workers that claim from its queue."""
        return [row for row in self.workers if row.serves(self.queue)]

    @property
    def able(self) -> list[WorkerRow]:
        """Those of them that have its task."""
        return [row for row in self.serving if row.has_task(self.job.task)]


# --- texts


def worker_command(queue: str) -> str:
    return f"durio worker -q {queue}"


def worker_text(row: WorkerRow) -> str:
    return f"worker {row.id} ({row.info['name']})"


def workers_text(rows: Sequence[WorkerRow], *, with_version: bool = False) -> str:
    """Return the first workers by name, and how many others there are."""
    texts = [
        f"{worker_text(row)} of durio {row.info['version']} with "
        f"{counted(len(row.info.get('tasks') or ()), 'task')}"
        if with_version
        else worker_text(row)
        for row in rows[:NAMED_MAX]
    ]
    return ", ".join(texts) + others_text(rows)


def others_text(rows: Sequence[object]) -> str:
    more = len(rows) - NAMED_MAX
    return f" and {more} more" if more > 0 else ""
