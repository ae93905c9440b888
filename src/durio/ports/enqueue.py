"""What a store promises about accepting jobs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from durio.model.errors import StoreError
from durio.model.job import NewJob
from durio.model.tx import Joinable


class Full(NamedTuple):
    """Why a queue takes no more jobs."""

    lane: str
    depth: int  # ready, scheduled and blocked
    limit: int
    is_closed: bool = False  # by an operator, whatever its depth
    is_soft: bool = False  # the default bound, checked about once a second


class Locked(NamedTuple):
    """An open transaction holds a lock that a call needs; it may end at any moment."""

    error: StoreError  # for a caller whose wait is over
    wait_seconds: float  # how long a call may wait, from the moment it was made


class Enqueued(NamedTuple):
    """The answer for one job, in the order of the call."""

    id: bytes  # the holder's id when the key answered `existing`
    created: bool  # False: an older job with this key (or this very id) answers
    state: int  # of the job that answers
    same_args: bool = True
    conflict: bool = False  # window key, other arguments: nothing was written
    replaced: bool = False  # the holder was rewritten with these arguments
    full: Full | None = None  # no room: nothing of this call was written
    locked: Locked | None = None  # neither now: try again


class Enqueue(Protocol):
    """Accepting jobs."""

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        calls: Sequence[int] | None = None,
        again: bool = False,
        tx: Joinable | None = None,
        apart: bool = False,
    ) -> list[Enqueued]:
        """Store all of them in a transaction that survives a power cut.

        `calls` are the sizes of consecutive calls, each from one caller: a call for
        which a bounded queue has no room is answered `full`, whole, and the others are
        stored. A call is stored whole or not at all. Where an open transaction holds a
        lock that a call needs, mostly that of a key, the store waits at most 0.1 s;
        then it stores the calls without keys and answers all calls with keys `locked`.

        `apart` says that all these calls have one key and were answered `locked`
        before: the store tries once more, for at most 0.1 s, and lets other calls go on
        meanwhile.

        Without `calls` all jobs are one call, and a store waits for what it needs.

        `again` says that this repeats a call whose outcome is unknown: a job whose id
        is already stored is answered as it stands, also when it finished meanwhile, and
        nothing is inserted. If the first try arrives later than its repeat, the first
        try finds its jobs stored. Without `again` too, an id that is stored is answered
        as it stands while its job is not final.

        `model.keys.answer` decides about keys. `run_at` in the past, or no delay, is
        ready now. Afterwards the workers of these lanes are woken. Raises StoreError,
        with `unknown` set when the write may have happened.

        `tx` is a transaction that the caller has open: the jobs exist if and only if it
        commits. All jobs are one call, and `calls` and `again` have no meaning. Nothing
        is committed, and nothing waits: with a `tx` that belongs to no event loop this
        never suspends. A full queue refuses nothing: the answers say `full` of jobs
        that were `created`. A queue that an operator closed takes none. Workers are
        woken after the commit where the store can see it; else they find the jobs by
        polling. Raises WrongTransaction for a `tx` that has ended, or of another
        database, and StoreError: the caller rolls back.
        """
        ...

    async def declare(
        self, maxsizes: Mapping[str, int | None], *, is_default: bool = False
    ) -> None:
        """Store the bounds of lanes from the code; bounds set by hand stay. Idempotent.

        A default (of an embedded worker, or of memory) yields to a bound that was
        chosen: it is set, changed or with None removed only where there is no such
        bound.
        """
        ...
