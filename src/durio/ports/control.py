"""Operators' hands on jobs, queues and workers.

Everything that people do is written down in the same transaction: who, when, what, to how
many jobs. `by` says who; code that acts on its own jobs leaves it out and is not audited.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from durio.model.job import StoredJob
from durio.ports.browse import Query

Verb = Literal["cancel", "retry", "discard"]


class Acted(NamedTuple):
    """What became of one job."""

    id: bytes
    before: int | None  # None: there is no such job
    after: int | None  # None: it is gone
    is_held: bool = False  # not done: a transaction that lasts has it, or its key


class Counted(NamedTuple):
    """How many jobs a query names, exactly, and up to where it looked."""

    jobs: int
    mark: str  # jobs that come to fit the query later are beyond it


class BulkStep(NamedTuple):
    """One step of an act on many jobs."""

    jobs: int  # changed by this step
    more: bool
    held: int = 0  # given up by it: transactions that last have them, or their keys


NO_BOUND = -1  # a bound by hand: there is none, whatever the code says
AS_IN_CODE = -2  # no bound by hand any more
BOUNDS_IN_WORDS = {NO_BOUND: "none", AS_IN_CODE: "as in the code"}


class AuditNote(NamedTuple):
    """A line of the audit, written in the transaction of the action that it describes."""

    namespace: str
    who: str
    verb: str
    target: str


class QueueChange(NamedTuple):
    """What to change about a queue; None leaves it as it is."""

    paused: bool | None = None  # gives no jobs to workers
    closed: bool | None = None  # takes no new jobs
    maxsize: int | None = None  # by hand: beats the code; NO_BOUND, AS_IN_CODE

    def in_words(self, lane: str) -> list[tuple[str, str]]:
        """Verb and target of each part of it, for the audit."""
        told: list[tuple[str, str]] = []
        if self.paused is not None:
            told.append(("pause" if self.paused else "resume", lane))
        if self.closed is not None:
            told.append(("close" if self.closed else "open", lane))
        if self.maxsize is not None:
            bound = BOUNDS_IN_WORDS.get(self.maxsize, str(self.maxsize))
            told.append(("limit", f"{lane} maxsize {bound}"))
        return told


class OperatorControl(Protocol):
    """Acting on jobs, queues and workers."""

    async def act(
        self, ids: Sequence[bytes], verb: Verb, *, by: str | None = None
    ) -> list[Acted]:
        """Do it, or leave a job as it is where its state does not allow it.

        cancel: a waiting job is cancelled and its key freed; a running one is marked
        (`after` stays running) and its worker woken; a final one is left alone.
        retry: dead and cancelled go back to ready with counters at zero and the same
        `claim_no`; others are left alone. They enter a full queue too, and take the
        key that they came with again: a job whose key another one has is left alone.
        discard: the record of a dead job is deleted; others are left alone.
        What somebody's transaction holds is done last; for as long as a call may last it is
        tried again, then left alone and told (`is_held`).
        """
        ...

    async def retry_edited(
        self, job_id: bytes, payload: bytes, *, by: str | None = None
    ) -> Acted:
        """`retry` of one job with other arguments, checked by the caller."""
        ...

    async def count(self, query: Query) -> Counted:
        """Exactly how many jobs fit, and a mark for `act_on`."""
        ...

    async def act_on(
        self, query: Query, verb: Verb, mark: str, limit: int, *, by: str
    ) -> BulkStep:
        """The verb for at most `limit` jobs that fit and are not beyond the mark.

        Called until there are no more. A step that nothing is left for writes nothing.
        Beyond the mark are jobs that arrived, or died, after the count: a dead letter
        that is sent back and dies again meanwhile is not met twice. All steps together
        are one line in the audit. Nobody waits for what somebody's transaction holds: it is
        met a second time, then left alone and counted (`held`).
        """
        ...

    async def restore(self, jobs: Sequence[StoredJob], *, by: str) -> int:
        """Dead letters from elsewhere; ids that are stored stay as they are.

        Whatever state a record says, it is restored as dead, and without a key. How many.
        """
        ...

    async def change_queue(self, lane: str, change: QueueChange, *, by: str) -> None:
        """Pause, resume, close, open or bound a queue; whoever serves it is told."""
        ...

    async def move(self, lane: str, to: str, limit: int, *, by: str) -> BulkStep:
        """Waiting jobs go to another queue with priority, due time and fence.

        Order is kept. A bound of the other queue is not asked: nothing is lost.
        """
        ...
