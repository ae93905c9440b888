"""The commit of jobs, records and entries in one transaction: all of them or nothing."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from durio.model.effects import Effects
from durio.model.tx import Joinable
from durio.ports.conflicts import Conflict
from durio.ports.control import AuditNote
from durio.ports.enqueue import Enqueued

ROWS_MAX = 1000  # jobs, records, entries and gates in one transaction


class Committed(NamedTuple):
    """The result of a commit."""

    enqueued: list[Enqueued]  # one for each job, in order; empty after a conflict
    # One for each put, in order, 0 for a deletion; empty after a conflict.
    versions: list[int]
    conflict: Conflict | None = None
    # One for each change of gates, in order: how many gates it has changed.
    gates: Sequence[int] = ()


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

        With `all_new` and a record that is written on a condition, the ids of the jobs are
        new: no other commit has them, and a repeat of this one is refused for the record.

        After a lost reply the same commit may be sent again. For a job that is already
        stored, the result is its current state. A put whose condition held before is a
        conflict now, and the conflict contains the record: a caller that finds its own body
        there has committed. A put without a condition is written again.

        A bound does not refuse a job that waits for a log; the job counts in its queue. An
        entry whose `uid` the log already has is left out. `extends` are checked last.

        Gates are changed before the jobs of this commit arrive there; then waiting jobs
        pass, as far as the changed gates allow. Changes by prefix may leave that to
        `Upkeep.settle`. A caller repeats a change by prefix while it has changed 1,000.

        `tx` is a transaction that the caller has open. Records can only be created there
        (`if_version=0`), waits cannot be extended, gates cannot be changed, and full queues
        accept the jobs as in `enqueue(tx=...)`.

        `note` is a line of the audit, written in the same transaction.

        A put of the kind `command:<worker>` wakes that worker, because its next renewal
        returns the command.

        Raises UsageError for more than 1,000 rows, a body of more than 64 KiB (an entry: 32
        KiB), a name that cannot be stored, a due time or expiry that is not finite, a record
        or a gate that is named twice, a job with more than 8 entries for its end or with
        gates that `model.gate.check_gates` refuses; and StoreError.
        """
        ...
