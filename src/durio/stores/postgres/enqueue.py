"""Accept jobs; one statement usually stores all calls of a batch.

Nearly all calls take one round trip (enqueue_fast.py). A call with a guarded queue, a held
key or a job that is tied to logs takes several (enqueue_locked.py).

**Repeats.** A caller whose reply was lost calls again with `again=True`. Finished jobs have
left the live table, so a repeat also reads the history. It records the jobs that it stores
in `repeated`, where a late first try finds them. After its insert, each try reads
again with a newer snapshot, and starts over if the other try was first. So the result
is right however long a try is delayed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from durio.model.errors import InvariantBroken, StoreError
from durio.model.job import READY, NewJob
from durio.model.tx import Joinable
from durio.ports.enqueue import Enqueued, Locked
from durio.stores.postgres.bounds import declare_bounds, record_entered
from durio.stores.postgres.caller_transaction import write_joined
from durio.stores.postgres.connections import LockWait
from durio.stores.postgres.context import PostgresCapability, PostgresContext
from durio.stores.postgres.driver import LOCKED
from durio.stores.postgres.enqueue_fast import enqueue_fast, is_lost
from durio.stores.postgres.enqueue_locked import ChangedConcurrently, enqueue_locked


class PostgresEnqueue(PostgresCapability):
    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        calls: Sequence[int] | None = None,
        again: bool = False,
        tx: Joinable | None = None,
        apart: bool = False,
    ) -> list[Enqueued]:
        """Store the jobs, all or none of each call, and wake workers."""
        if not jobs:
            return []
        if tx is not None:
            return await write_joined(
                self.context,
                tx,
                jobs,
                lambda joined: enqueue_in_caller_tx(joined, jobs),
            )
        if calls is not None:
            return await enqueue_calls(
                self.context, jobs, calls, again=again, apart=apart
            )
        whole = (len(jobs),)
        answers = None if again else await enqueue_fast(self.context, jobs, whole)
        if answers is None:
            return await enqueue_locked(self.context, jobs, whole, again=again)
        return await complete_answers(self.context, jobs, answers)

    async def declare(
        self, maxsizes: Mapping[str, int | None], *, is_default: bool = False
    ) -> None:
        """Store the bounds of lanes from the code; write only what changed."""
        await declare_bounds(self.context, maxsizes, is_default=is_default)


async def complete_answers(
    context: PostgresContext, jobs: Sequence[NewJob], answers: Sequence[Enqueued | None]
) -> list[Enqueued]:
    """Enqueue the jobs that were left out because their key is held."""
    left = left_out(jobs, answers)
    if not left:
        return fill_answers(answers, [])
    try:
        late = await enqueue_locked(context, left, [1] * len(left), again=False)
    except StoreError as error:
        # The others are stored, so a repeated call finds them.
        error.unknown = error.unknown or len(left) < len(jobs)
        raise
    return fill_answers(answers, late)


def left_out(
    jobs: Sequence[NewJob], answers: Sequence[Enqueued | None]
) -> list[NewJob]:
    return [job for job, answer in zip(jobs, answers, strict=True) if answer is None]


def fill_answers(
    answers: Sequence[Enqueued | None], late: Sequence[Enqueued]
) -> list[Enqueued]:
    """Put the late results in the places of the missing ones."""
    more = iter(late)
    return [next(more) if answer is None else answer for answer in answers]


async def enqueue_in_caller_tx(
    context: PostgresContext, jobs: Sequence[NewJob]
) -> list[Enqueued]:
    calls = (len(jobs),)
    answers = await enqueue_fast(context, jobs, calls)
    if answers is None:
        return await enqueue_locked(context, jobs, calls, again=False)
    if context.has_fixed_snapshot:
        pairs = zip(jobs, answers, strict=True)
        new = Counter(job.lane for job, answer in pairs if answer and answer.created)
        await record_entered(cast("Any", context.connections), new)
    return await complete_answers(context, jobs, answers)


# --- for several callers


async def enqueue_calls(
    context: PostgresContext,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    *,
    again: bool,
    apart: bool = False,
) -> list[Enqueued]:
    """Store the jobs that need not wait for a lock; return `locked` for the others."""
    if sum(calls) != len(jobs):
        raise InvariantBroken(f"calls of {sum(calls)} jobs, but {len(jobs)} jobs")
    lock_wait = LockWait.SPARE if apart else batch_lock_wait(context, jobs)
    try:
        return await enqueue_together(context, jobs, calls, lock_wait, again=again)
    except StoreError as error:
        # A call that waits for a lock keeps waiting if its connection is lost.
        if not (is_locked(error) or (apart and is_lost(error))):
            raise
        return await enqueue_without_keyed(context, jobs, calls, error, again=again)


def batch_lock_wait(context: PostgresContext, jobs: Sequence[NewJob]) -> LockWait:
    """Return how long a batch waits for locks.

    Other enqueues lock a bounded queue often, but briefly. There the wait for a key is
    limited after the queue is locked.
    """
    if all(job.key is None for job in jobs):
        return LockWait.ONE_TURN
    guarded = context.guarded_lanes
    if guarded and not guarded.isdisjoint(job.lane for job in jobs):
        return LockWait.ONE_TURN
    return LockWait.KEY


async def enqueue_together(
    context: PostgresContext,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    lock_wait: LockWait,
    *,
    again: bool,
) -> list[Enqueued]:
    """Store all jobs; if it raises because of a lock, none is stored."""
    answers = None
    if not again:
        answers = await enqueue_fast(context, jobs, calls, lock_wait)
    if answers is None:
        return await enqueue_locked(context, jobs, calls, lock_wait, again=again)
    left = left_out(jobs, answers)
    if not left:
        return fill_answers(answers, [])
    each = [1] * len(left)
    try:
        late = await enqueue_locked(context, left, each, lock_wait, again=False)
    except StoreError as error:
        if not is_locked(error):
            error.unknown = error.unknown or len(left) < len(jobs)
            raise
        late = locked_answers(context, left, error)
    return fill_answers(answers, late)


async def enqueue_without_keyed(
    context: PostgresContext,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    error: StoreError,
    *,
    again: bool,
) -> list[Enqueued]:
    """Store the calls without keys, because the locked row is probably a key."""
    is_plain: list[bool] = []
    sizes: list[int] = []
    for size in calls:
        plain = all(job.key is None for job in jobs[len(is_plain) :][:size])
        is_plain += [plain] * size
        sizes += [size] if plain else []
    plain_jobs = [job for job, plain in zip(jobs, is_plain, strict=True) if plain]
    if not plain_jobs or len(sizes) == len(calls):
        return locked_answers(context, jobs, error)
    keyed_jobs = [job for job, plain in zip(jobs, is_plain, strict=True) if not plain]
    locked = iter(locked_answers(context, keyed_jobs, error))
    stored = iter(await enqueue_calls(context, plain_jobs, sizes, again=again))
    return [next(stored if plain else locked) for plain in is_plain]


def locked_answers(
    context: PostgresContext, jobs: Sequence[NewJob], error: StoreError
) -> list[Enqueued]:
    locked = Locked(error, context.location.call_seconds)
    return [Enqueued(job.id, False, READY, locked=locked) for job in jobs]


def is_locked(error: StoreError) -> bool:
    """Whether the error was caused only by other transactions' locks or changes."""
    return isinstance(error, ChangedConcurrently) or error.values.get("state") == LOCKED
