"""What a store promises about a commit: jobs and records, all of them or nothing."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from durio.model.job import NewJob
from durio.model.tx import Joinable
from durio.ports.control import AuditNote
from durio.ports.enqueue import Enqueued, Full
from durio.ports.records import Put, Record

ROWS_MAX = 1000  # jobs and records of one transaction


class Effects(NamedTuple):
    """What one transaction writes."""

    jobs: Sequence[NewJob] = ()
    puts: Sequence[Put] = ()


class Conflict(NamedTuple):
    """The first condition that did not hold: nothing was written."""

    # record: the version is another one; full: a queue has no room, or is closed;
    # key: another job has the idempotency key.
    what: Literal["record", "full", "key"]
    name: str  # of the record, of the lane, or the id of the job that has the key
    # The stored record, so that a repeat recognises its own write.
    record: Record | None = None
    full: Full | None = None


class Committed(NamedTuple):
    """The answer to a commit."""

    enqueued: list[Enqueued]  # one for each job, in order; empty after a conflict
    versions: list[int]  # one for each put, in order, 0 for a deletion; empty likewise
    conflict: Conflict | None = None


class Commit(Protocol):
    """Writing jobs and records in one transaction."""

    async def commit(
        self,
        effects: Effects,
        *,
        tx: Joinable | None = None,
        all_new: bool = False,
        enters: bool = False,
        note: AuditNote | None = None,
    ) -> Committed:
        """Write all of the effects, or nothing.

        Conditions are checked in order: the puts, then the jobs. The first one that does
        not hold is the answer. The store does not retry it.

        A job whose key answers `existing` is no conflict (`created=False`); with `all_new`
        it is one. A key whose holder refuses other arguments is one in any case. A full
        queue refuses the commit; with `enters` it takes these jobs. A closed queue refuses
        in any case.

        After a lost reply the same commit may be sent again. For a job that is
        stored already the answer gives its present state. A put whose condition held before is a conflict now, and the
        conflict carries the record: a caller that finds its own body there has committed.
        A put without a condition is written again.

        `tx` is a transaction that the caller has open. Records can only be created there
        (`if_version=0`), and full queues take the jobs as in `enqueue(tx=...)`.

        `note` is a line of the audit, written in the same transaction.

        A put of the kind `command:<worker>` wakes that worker, as its next renewal brings
        the command.

        Raises UsageError for more than 1,000 rows, a body of more than 64 KiB, a name that
        cannot be stored, or a record that is named twice; and StoreError.
        """
        ...
