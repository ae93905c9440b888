"""What operators do to jobs, queues and workers.

An action of a person is audited in its own transaction: who, when, what, how many jobs.
Code that acts on its own jobs passes no note and is not audited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

from durio.model.ids import format_ids
from durio.model.job import CANCELLED, DEAD, READY, RUNNING, SCHEDULED, StoredJob
from durio.model.names import namespace_of
from durio.ports.browse import Query

Verb = Literal["cancel", "retry", "discard"]


@dataclass(frozen=True, slots=True)
class CancelJobs:
    """Cancel jobs that have not ended.

    A waiting job is cancelled and its key is freed. A running one is marked (`after` stays
    running) and its worker is woken.
    """

    verb: ClassVar[str] = "cancel"
    # The states that it changes, in the order in which jobs go from one to the next.
    states: ClassVar[tuple[int, ...]] = (SCHEDULED, READY, RUNNING)


@dataclass(frozen=True, slots=True)
class RetryJobs:
    """Dead and cancelled jobs become ready, with counters at zero and the same `claim_no`.

    They also enter a full queue. Each takes the key again that it came with; a job whose key
    belongs to another job now stays as it is.
    """

    payload: bytes | None = None  # other arguments; the caller has checked them
    states: ClassVar[tuple[int, ...]] = (DEAD, CANCELLED)

    @property
    def verb(self) -> str:
        return "retry" if self.payload is None else "retry_edited"


@dataclass(frozen=True, slots=True)
class DiscardJobs:
    """Delete the records of dead jobs."""

    verb: ClassVar[str] = "discard"
    states: ClassVar[tuple[int, ...]] = (DEAD,)


@dataclass(frozen=True, slots=True)
class MoveJobs:
    """Waiting jobs go to another queue, with order, priority, due time and fence.

    The bound of that queue is not checked: no job is lost.
    """

    lane: str
    verb: ClassVar[str] = "move"
    states: ClassVar[tuple[int, ...]] = (SCHEDULED, READY)


Action = CancelJobs | RetryJobs | DiscardJobs | MoveJobs
ACTION_OF_VERB: dict[Verb, Action] = {
    "cancel": CancelJobs(),
    "retry": RetryJobs(),
    "discard": DiscardJobs(),
}


class Acted(NamedTuple):
    """What became of one job."""

    id: bytes
    before: int | None  # None: there is no such job
    after: int | None  # None: it is gone
    is_held: bool = False  # not done: another transaction has locked it, or its key

    def is_changed_by(self, action: Action) -> bool:
        """Whether the action did anything; a job that moves keeps its state."""
        if self.is_held or self.before not in action.states:
            return False
        return not isinstance(action, RetryJobs) or self.before != self.after


class AuditEntry(NamedTuple):
    """A line of the audit, except for its time."""

    namespace: str
    who: str
    verb: str
    target: str
    jobs: int


@dataclass(slots=True)
class AuditNote:
    """A line of the audit, except for the time and the number of jobs.

    The store fills in what is empty, from the action and its jobs. A note with a target is
    one line for all calls that it is passed to.
    """

    namespace: str = ""
    who: str = ""
    verb: str = ""
    target: str = ""
    line: int | None = None  # set by the store: where the next call adds its jobs

    def entries(
        self, action: Action, acted: Sequence[Acted], lanes: Mapping[bytes, str]
    ) -> list[AuditEntry]:
        """What to write: for the target if any job changed, or one entry for each App."""
        jobs_of: dict[str, list[Acted]] = {}
        if self.target:
            jobs_of[self.namespace] = [a for a in acted if a.is_changed_by(action)]
        else:
            for one in acted:
                if one.id in lanes:
                    jobs_of.setdefault(namespace_of(lanes[one.id]), []).append(one)
        return [
            AuditEntry(
                namespace,
                self.who,
                self.verb or action.verb,
                self.target or format_ids([one.id for one in some]),
                sum(one.is_changed_by(action) for one in some),
            )
            for namespace, some in jobs_of.items()
            if some
        ]


class Counted(NamedTuple):
    """How many jobs a query names, exactly, and up to where it looked."""

    jobs: int
    mark: str  # jobs that come to fit the query later are beyond it


NO_BOUND = -1  # a bound by hand: there is none, whatever the code says
AS_IN_CODE = -2  # no bound by hand any more
BOUNDS_IN_WORDS = {NO_BOUND: "none", AS_IN_CODE: "as in the code"}


class QueueChange(NamedTuple):
    """What to change about a queue; None leaves it as it is."""

    paused: bool | None = None  # gives no jobs to workers
    closed: bool | None = None  # takes no new jobs
    maxsize: int | None = None  # by hand: beats the code; NO_BOUND, AS_IN_CODE

    def difference_to(
        self, *, paused: bool, closed: bool, manual: int | None
    ) -> "QueueChange":
        """The part of it that is not so yet, for a queue as it is stored."""
        bound = AS_IN_CODE if manual is None else manual
        return QueueChange(
            None if self.paused == paused else self.paused,
            None if self.closed == closed else self.closed,
            None if self.maxsize == bound else self.maxsize,
        )

    def in_words(self, lane: str) -> list[tuple[str, str]]:
        """Verb and target of each part of it, for the audit."""
        parts: list[tuple[str, str]] = []
        if self.paused is not None:
            parts.append(("pause" if self.paused else "resume", lane))
        if self.closed is not None:
            parts.append(("close" if self.closed else "open", lane))
        if self.maxsize is not None:
            bound = BOUNDS_IN_WORDS.get(self.maxsize, str(self.maxsize))
            parts.append(("limit", f"{lane} maxsize {bound}"))
        return parts


class OperatorControl(Protocol):
    """Acting on jobs, queues and workers."""

    async def act(
        self,
        ids: Sequence[bytes],
        action: Action,
        *,
        only: tuple[Query, str] | None = None,
        note: AuditNote | None = None,
    ) -> list[Acted]:
        """Do it to each job whose state allows it; the others stay as they are.

        Jobs that another transaction has locked are tried again for as long as a call may
        last; then they stay as they are (`is_held`).

        `only`: a query and the mark of its count. The store checks inside the transaction
        that a job still fits the query and is not beyond the mark; the answer leaves out
        those that do not. Locked jobs are not tried again. Without changed jobs nothing is
        written.
        """
        ...

    async def count(self, query: Query) -> Counted:
        """Exactly how many jobs fit, and a mark for `find` and `act`.

        Beyond the mark are jobs that arrive, or die, after the count: a dead letter that is
        retried and dies again is not met twice.
        """
        ...

    async def restore(self, jobs: Sequence[StoredJob], note: AuditNote) -> int:
        """Insert dead letters from elsewhere; ids that are stored stay as they are.

        Each is restored as dead, without a key, whatever state its record has. The number
        of those that were inserted.
        """
        ...

    async def set_queue(self, lane: str, change: QueueChange, note: AuditNote) -> None:
        """Pause, resume, close, open or bound a queue; the workers that serve it are woken.

        Each part that was not so yet is a line of the audit.
        """
        ...
