"""What a store promises about accepting jobs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from durio.model.errors import StoreError
from durio.model.job import NewJob
from durio.model.tx import Joinable


class Full(NamedTuple):
    """Why a queue takes nothing more."""

    lane: str
    depth: int  # ready, scheduled and blocked
    limit: int
    is_closed: bool = False  # by hand, whatever its depth
    is_soft: bool = False  # the default bound, judged about once a second


class Locked(NamedTuple):
    """An open transaction holds a lock that a call needs; it may end at any moment."""

    error: StoreError  # for a caller that has waited in vain
    wait_seconds: float  # how long a call may wait, from the moment it was made


class Enqueued(NamedTuple):
    """The answer for one job, in the order asked."""

    id: bytes  # the holder's id when the key answered `existing`
    created: bool  # False: an older job with this key (or this very id) answers
    state: int  # of the job that answers
    same_args: bool = True
    conflict: bool = False  # window key, other arguments: nothing was written
    replaced: bool = False  # the holder was rewritten with these arguments
    full: Full | None = None  # no room: nothing of this call was written
    locked: Locked | None = None  # neither now: ask again


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

        `calls` are the sizes of consecutive runs of jobs, each from one caller: a run
        for which a bounded queue has no room is answered `full`, whole, and the others
        are stored. A run is stored whole or not at all. Where an open transaction holds a
        lock that a run needs, mostly that of a key, the store waits at most 0.1 s; then
        it stores the runs without keys and answers all runs with keys `locked`.

        `apart` says that all these runs have one key and were answered `locked` before:
        the store tries once more, for at most 0.1 s, and lets other calls go on meanwhile.

        Without `calls` all jobs are one run, and a store waits for what it needs.

        `again` says that this repeats a call whose outcome is unknown: a job whose id is
        already stored is answered as it stands, also when it finished meanwhile, and
        nothing is inserted. Should the first try come later than its repeat, it is the
        one that finds its jobs stored. An id that stands is no news without `again`
        either, as long as its job is not final.

        Keys are judged by `model.keys.answer`. `run_at` in the past, or no delay, is
        ready now. Afterwards the workers of these lanes are woken. Raises StoreError, with
        `unknown` set when the write may have happened.

        `tx` is a transaction that the caller has open: the jobs exist if and only if it
        commits. All jobs are one run, and `calls` and `again` have no meaning. Nothing is
        committed, and nothing is waited for: with a `tx` that belongs to no event loop
        this never suspends. A full queue refuses nothing: the answers say `full` of jobs
        that were `created`. A queue that was closed by hand takes none. Workers are woken
        after the commit where the store can see it; else they find the jobs by
        themselves. Raises WrongTransaction for a `tx` that is over, or of another
        database, and StoreError: the caller rolls back.
        """
        ...

    async def declare(
        self, maxsizes: Mapping[str, int | None], *, is_default: bool = False
    ) -> None:
        """Bounds of lanes as the code says; a bound set by hand stays. Idempotent.

        A default (of an embedded worker, or of memory) yields to a bound that somebody
        chose: it is set, changed or with None taken back only where there is none.
        """
        ...
