"""Operators' actions on jobs, queues and workers.

A person's action is audited in its own transaction: who, when, what, how many jobs. Code
that acts on its own jobs passes no note and is not audited.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import msgspec

from durio.model.effects import Effects
from durio.model.ids import format_ids
from durio.model.job import (
    BLOCKED,
    CANCELLED,
    DEAD,
    READY,
    RUNNING,
    SCHEDULED,
    StoredJob,
)
from durio.model.names import namespace_of
from durio.ports.browse import Query

Verb = Literal["cancel", "retry", "discard", "run_now"]


class CancelJobs(msgspec.Struct, frozen=True):
    """Cancel jobs that have not ended.

    A waiting job is cancelled and its key is freed. A running job is marked (`after` stays
    running) and its worker is woken.
    """

    # Stored with a waiting job, and with a running one that is cancelled quietly.
    reason: str | None = None
    is_quiet: bool = False  # it appends no entries; it keeps them for a retry
    # A waiting job is kept as long as dead ones: it is retried with one of them.
    is_kept_as_dead: bool = False
    verb: ClassVar[str] = "cancel"
    # The states that it changes, in the order in which jobs go through them.
    states: ClassVar[tuple[int, ...]] = (BLOCKED, SCHEDULED, READY, RUNNING)


class KillJobs(msgspec.Struct, frozen=True):
    """Make jobs that wait dead; a running job stays unchanged.

    Its key is freed, and it appends the entries for a dead job.
    """

    reason: str
    error: bytes  # added to the errors of each job
    verb: ClassVar[str] = "kill"
    states: ClassVar[tuple[int, ...]] = (BLOCKED, SCHEDULED, READY)


class RetryJobs(msgspec.Struct, frozen=True):
    """Make dead and cancelled jobs ready, with counters at zero and the same `claim_no`.

    They also enter a full queue. Each takes its key again; a job whose key another job
    holds stays unchanged. A job that waited for a log waits again, unless the log is long
    enough. A job with an expiry expires no more.
    """

    payload: bytes | None = None  # new arguments, checked by the caller
    states: ClassVar[tuple[int, ...]] = (DEAD, CANCELLED)

    @property
    def verb(self) -> str:
        return "retry" if self.payload is None else "retry_edited"


class DiscardJobs(msgspec.Struct, frozen=True):
    """Delete the records of dead jobs."""

    with_cancelled: bool = False  # and those of cancelled jobs
    verb: ClassVar[str] = "discard"

    @property
    def states(self) -> tuple[int, ...]:
        return (DEAD, CANCELLED) if self.with_cancelled else (DEAD,)


class RunJobsNow(msgspec.Struct, frozen=True):
    """Make scheduled jobs ready, also those that wait for a retry; they are due now."""

    verb: ClassVar[str] = "run_now"
    states: ClassVar[tuple[int, ...]] = (SCHEDULED,)


class MoveJobs(msgspec.Struct, frozen=True):
    """Move waiting jobs to another queue, with order, priority, due time and fence.

    The bound of that queue is not checked, so that no job is lost.
    """

    lane: str
    verb: ClassVar[str] = "move"
    states: ClassVar[tuple[int, ...]] = (BLOCKED, SCHEDULED, READY)


class RenameJobs(msgspec.Struct, frozen=True):
    """Give waiting and dead jobs another task, and hash their keys with its name.

    A job stays as it is (`is_held`) when another job has its key under that name, or when
    the text of its key is not known.
    """

    task: str
    verb: ClassVar[str] = "rename"
    states: ClassVar[tuple[int, ...]] = (BLOCKED, SCHEDULED, READY, DEAD)


Action = (
    CancelJobs | KillJobs | RetryJobs | DiscardJobs | RunJobsNow | MoveJobs | RenameJobs
)
ACTION_OF_VERB: dict[Verb, Action] = {
    "cancel": CancelJobs(),
    "retry": RetryJobs(),
    "discard": DiscardJobs(),
    "run_now": RunJobsNow(),
}


class Acted(NamedTuple):
    """The result of an action on one job."""

    id: bytes
    before: int | None  # None: there is no such job
    after: int | None  # None: it is deleted
    # Unchanged: another transaction has locked it or its key; or see RenameJobs.
    is_held: bool = False

    def is_changed_by(self, action: Action) -> bool:
        """Whether the action changed the job; a job that moves keeps its state."""
        if self.is_held or self.before not in action.states:
            return False
        return not isinstance(action, RetryJobs) or self.before != self.after


WHO_CHARS_MAX = 200
TARGET_CHARS_MAX = 1000
DETAILS_CHARS_MAX = 8000  # longer JSON is left out, because a part of it cannot be read


class AuditEntry(NamedTuple):
    """A line of the audit, except for its time."""

    namespace: str
    who: str
    verb: str
    target: str
    jobs: int = 0
    details: str = ""

    def cut(self) -> "AuditEntry":
        """Return the line with texts of the length that is stored."""
        return self._replace(
            who=self.who[:WHO_CHARS_MAX],
            target=self.target[:TARGET_CHARS_MAX],
            details=self.details if len(self.details) <= DETAILS_CHARS_MAX else "",
        )


@dataclass(slots=True)
class AuditNote:
    """A line of the audit, except for the time and the number of jobs.

    The store fills in empty fields from the action and its jobs. A note with a target is
    one line for all calls that it is passed to.
    """

    namespace: str = ""
    who: str = ""
    verb: str = ""
    target: str = ""
    details: str = ""  # JSON: where the request came from, what it changed
    # Set by the store: the line to which the next call adds its jobs.
    line: int | None = None

    def entry(self) -> AuditEntry:
        """Return the only line of a change that is not of jobs."""
        return AuditEntry(
            self.namespace, self.who, self.verb, self.target, details=self.details
        )

    def entry_of(self, lane: str, verb: str, target: str) -> AuditEntry:
        """Return the line of one change of a queue."""
        return AuditEntry(
            namespace_of(lane), self.who, verb, target, details=self.details
        )

    def entries(
        self, action: Action, acted: Sequence[Acted], lanes: Mapping[bytes, str]
    ) -> list[AuditEntry]:
        """Return one entry for the target if any job changed, or one for each App."""
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
                self.details,
            )
            for namespace, some in jobs_of.items()
            if some
        ]


class Counted(NamedTuple):
    """The exact number of jobs that match a query, and how far it looked."""

    jobs: int
    mark: str  # later matches are beyond this mark


NO_BOUND = -1  # an operator's bound: unlimited, whatever the code says
AS_IN_CODE = -2  # removes the operator's bound
BOUNDS_IN_WORDS = {NO_BOUND: "none", AS_IN_CODE: "as in the code"}


class QueueChange(NamedTuple):
    """What to change about a queue; None leaves a setting unchanged."""

    paused: bool | None = None  # workers get no jobs from the queue
    closed: bool | None = None  # the queue accepts no new jobs
    maxsize: int | None = None  # overrides the code; or NO_BOUND, AS_IN_CODE
    reason: str | None = None  # why it is paused or closed, for the audit

    def difference_to(
        self, *, paused: bool, closed: bool, manual: int | None
    ) -> "QueueChange":
        """Return the part of the change that differs from the stored queue."""
        bound = AS_IN_CODE if manual is None else manual
        return QueueChange(
            None if self.paused == paused else self.paused,
            None if self.closed == closed else self.closed,
            None if self.maxsize == bound else self.maxsize,
            self.reason,
        )

    def in_words(self, lane: str) -> list[tuple[str, str]]:
        """Return verb and target of each changed setting, for the audit."""
        parts: list[tuple[str, str]] = []
        if self.paused is not None:
            why = f" ({self.reason})" if self.paused and self.reason else ""
            parts.append(("pause" if self.paused else "resume", f"{lane}{why}"))
        if self.closed is not None:
            why = f" ({self.reason})" if self.closed and self.reason else ""
            parts.append(("close" if self.closed else "open", f"{lane}{why}"))
        if self.maxsize is not None:
            bound = BOUNDS_IN_WORDS.get(self.maxsize, str(self.maxsize))
            parts.append(("limit", f"{lane} maxsize {bound}"))
        return parts


class OperatorControl(Protocol):
    """Actions on jobs, queues and workers."""

    async def act(
        self,
        ids: Sequence[bytes],
        action: Action,
        *,
        only: tuple[Query, str] | None = None,
        note: AuditNote | None = None,
        effects: Effects | None = None,
    ) -> list[Acted]:
        """Act on each job whose state allows it; leave the others unchanged.

        Jobs that another transaction has locked are tried again until the time limit of a
        call; then they stay unchanged (`is_held`).

        `only` is a query and the mark of its count. The store checks inside the transaction
        that a job still matches the query and is not beyond the mark; the result leaves out
        jobs that do not. Locked jobs are not tried again. If no job changes, nothing is
        written.

        `effects` are written in the same transaction. If one of their conditions does not
        hold, nothing is written, and EffectsRefused is raised.
        """
        ...

    async def count(self, query: Query, *, most: int | None = None) -> Counted:
        """Return the exact number of matching jobs, and a mark for `find` and `act`.

        With `most` the count stops there. Then the mark is empty, and no action can use it.

        Jobs that arrive or die after the count are beyond the mark, so a dead letter that
        is retried and dies again is not acted on twice.
        """
        ...

    async def restore(self, jobs: Sequence[StoredJob], note: AuditNote) -> int:
        """Insert dead letters from a file; leave ids that are already stored unchanged.

        Each is restored as dead, without a key, whatever state its record has. Returns how
        many were inserted.
        """
        ...

    async def set_queue(self, lane: str, change: QueueChange, note: AuditNote) -> None:
        """Pause, resume, close, open or bound a queue; wake the workers that serve it.

        Each setting that changes is a line of the audit.
        """
        ...
