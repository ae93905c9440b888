"""The interface for accepting jobs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from durio.model.errors import StoreError
from durio.model.job import NewJob
from durio.model.tx import Joinable


class Full(NamedTuple):
    """Why a queue accepts no more jobs."""

    lane: str
    depth: int  # ready, scheduled and blocked jobs
    limit: int
    is_closed: bool = False  # closed by an operator, at any depth
    is_soft: bool = False  # the default bound, checked about once a second


class Locked(NamedTuple):
    """An open transaction holds a lock that a call needs; it may be freed at any moment."""

    error: StoreError  # error for a caller whose time is over
    wait_seconds: float  # how long a call may wait, from when it was made


class Enqueued(NamedTuple):
    """The result for one job, in the order of the call."""

    id: bytes  # the holder's id if the key has one
    created: bool  # False: an existing job has this key, or this very id
    state: int  # of the job with this id
    same_args: bool = True
    conflict: bool = False  # window key with other arguments: nothing was written
    replaced: bool = False  # the holder was rewritten with these arguments
    full: Full | None = None  # no room: nothing of this call was written
    locked: Locked | None = None  # a lock is not free: try again


class Enqueue(Protocol):
    """Accepts jobs."""

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        calls: Sequence[int] | None = None,
        again: bool = False,
        tx: Joinable | None = None,
        apart: bool = False,
    ) -> list[Enqueued]:
        """Store all jobs in a transaction that survives a power failure.

        `calls` are the sizes of consecutive calls, each from one caller. Either all jobs of
        a call are stored or none. A call for which a bounded queue has no room gets the
        result `full` for all its jobs, and the other calls are stored. If an open
        transaction holds a lock that a call needs, usually that of a key, the store waits
        at most 0.1 s; then it stores the calls without keys and returns `locked` for all
        calls with keys.

        `apart` says that all these calls have one key and were `locked` before: the store
        tries once more, for at most 0.1 s, and lets other calls continue meanwhile.

        Without `calls` all jobs are one call, and the store waits for the locks that it
        needs.

        `again` says that this repeats a call whose outcome is unknown: for a job whose id
        is already stored, the result is its current state, even if it has finished
        meanwhile, and nothing is inserted. If the first try arrives later than its
        repeat, it finds its jobs stored. Without `again`, the same holds for a stored id
        while its job is not final.

        `model.keys.key_answer` decides about keys. A job with a `run_at` in the past, or
        without a delay, is ready now, or blocked if it has to wait for a log or stands
        before a gate. After the write, the workers of these lanes are
        woken. Raises StoreError, with `unknown` set if the write may have happened.

        `tx` is a transaction that the caller has open: the jobs exist if and only if it
        commits. All jobs are one call, and `calls` and `again` have no meaning. Nothing is
        committed, and nothing waits: with a `tx` that belongs to no event loop this never
        suspends. A store may let jobs with gates pass them after the commit: their state is
        blocked then. A full queue accepts the jobs: their results have both `created` and
        `full`. A queue that an operator closed refuses them. Workers are woken after the
        commit if the store can see it; otherwise they find the jobs by polling. Raises
        WrongTransaction for a `tx` that has ended, or of another database, and StoreError:
        the caller rolls back.
        """
        ...

    async def declare(
        self, maxsizes: Mapping[str, int | None], *, is_default: bool = False
    ) -> None:
        """Store the bounds of lanes from the code.

        Keep bounds set by operators. Idempotent. A default bound (of an embedded worker, or
        of memory) does not replace a bound that was chosen: it is set, changed, or with
        None removed only if there is no chosen bound.
        """
        ...
