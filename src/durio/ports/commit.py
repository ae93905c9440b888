"""The commit of jobs, records and entries in one transaction: all of them or nothing."""

from typing import NamedTuple, Protocol

from durio.model.effects import Effects
from durio.model.tx import Joinable
from durio.ports.conflicts import Conflict
from durio.ports.control import AuditNote
from durio.ports.enqueue import Enqueued

ROWS_MAX = 1000  # jobs, records and entries in one transaction


class Committed(NamedTuple):
    """The result of a commit."""

    enqueued: list[Enqueued]  # one for each job, in order; empty after a conflict
    # One for each put, in order, 0 for a deletion; empty after a conflict.
    versions: list[int]
    conflict: Conflict | None = None


class Commit(Protocol):
    """Writes jobs, records and entries in one transaction."""

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

        Conditions are checked in order: the puts, then the jobs. The result is the first
        one that does not hold. The store does not retry.

        A job whose key has a holder already is no conflict (`created=False`), except with
        `all_new`. A key whose holder refuses other arguments is always a conflict. A full
        queue refuses the commit, but accepts these jobs with `enters`. A closed queue
        always refuses.

        After a lost reply the same commit may be sent again. For a job that is already
        stored, the result is its current state. A put whose condition held before is a
        conflict now, and the conflict contains the record: a caller that finds its own body
        there has committed. A put without a condition is written again.

        A bound does not refuse a job that waits for a log; the job counts in its queue. An
        entry whose `uid` the log already has is left out. `extends` are checked last.

        `tx` is a transaction that the caller has open. Records can only be created there
        (`if_version=0`), waits cannot be extended, and full queues accept the jobs as in
        `enqueue(tx=...)`.

        `note` is a line of the audit, written in the same transaction.

        A put of the kind `command:<worker>` wakes that worker, because its next renewal
        returns the command.

        Raises UsageError for more than 1,000 rows, a body of more than 64 KiB (an entry: 32
        KiB), a name that cannot be stored, a due time or expiry that is not finite, a record
        that is named twice, or a job with more than 8 entries for its end; and StoreError.
        """
        ...
