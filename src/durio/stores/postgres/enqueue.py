"""Accept jobs; one statement usually stores all calls of a batch.

Nearly all calls take one round trip (enqueue_fast.py). A call with a guarded queue or a
held key reads under locks, decides in memory (admission.py) and writes. Every transaction
locks in this order: guarded queues, lane rows, keys.

**Repeats.** A caller whose reply was lost calls again with `again=True`. Finished jobs have
left the live table, so a repeat also reads the history. It records the jobs that it stores
in `repeated`, where a late first try finds them. After its insert, each try reads
again with a newer snapshot, and starts over if the other try was first. So the result
is right however long a try is delayed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from durio.model.errors import InvariantBroken, StoreError, StoreUnavailable
from durio.model.job import READY, NewJob
from durio.model.names import namespace_of
from durio.model.quantities import counted
from durio.model.tx import Joinable
from durio.ports.enqueue import Enqueued, Locked
from durio.stores.postgres.admission import (
    Admission,
    AdmissionInput,
    Draft,
    StaleRead,
    StoredState,
)
from durio.stores.postgres.bounds import (
    change_depths,
    clear_soft_mark,
    declare_bounds,
    lock_guards,
    namespaces_with_workers,
    read_guards,
    record_entered,
)
from durio.stores.postgres.caller_transaction import write_joined
from durio.stores.postgres.connections import LockWait
from durio.stores.postgres.context import PostgresCapability, PostgresContext
from durio.stores.postgres.driver import BRIEF_WAIT, LOCKED
from durio.stores.postgres.enqueue_fast import enqueue_fast, is_lost, lower_watermarks
from durio.stores.postgres.keys import (
    LockedKeys,
    free_keys,
    holder_lanes,
    keys_to_pin,
    lock_keys,
    take_keys,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

FIND = statement("find_stored_jobs")
INSERT = statement("insert_job")
REWRITE = statement("rewrite_job")
RECHECK = statement("recheck_repeated")
MARK_REPEATED = statement("mark_repeated")

# How late a first try may arrive after its repeat: longer than any network keeps a lost
# connection alive.
REPEATED_SECONDS = 3600.0
# Used for keys while a queue is locked, because a long transaction may hold the key.
SHORT_WAIT = f"set local lock_timeout = '{BRIEF_WAIT}'"
TRIES = 10


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


class ChangedConcurrently(StoreUnavailable):
    """Other transactions changed the same jobs and keys during every try."""


# --- under locks


async def enqueue_locked(
    context: PostgresContext,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    lock_wait: LockWait = LockWait.LONG,
    *,
    again: bool,
) -> list[Enqueued]:
    """Lock, read, decide, write; start again after a concurrent change."""
    for _ in range(TRIES):
        try:
            return await context.connections.write(
                lambda tx: enqueue_jobs(context, tx, jobs, calls, again=again),
                lock_wait=lock_wait,
            )
        except StaleRead:
            continue
    raise ChangedConcurrently(
        f"{counted(len(jobs), 'job')} could not be stored in {TRIES} tries: other "
        "transactions changed the same jobs and keys each time",
        cure="Try again.",
    )


async def enqueue_jobs(
    context: PostgresContext,
    tx: PostgresTransaction,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    *,
    again: bool,
    enters_full: bool = False,
) -> list[Enqueued]:
    """Lock, read, decide and write in this transaction; raises StaleRead to start again."""
    pinned = keys_to_pin(jobs, in_caller_tx=context.in_caller_tx)
    lanes = {job.lane for job in jobs} | await holder_lanes(tx, pinned)
    guards = await (read_guards if context.in_caller_tx else lock_guards)(tx, lanes)
    context.guarded_lanes |= guards.keys()  # a hint for which statement is quicker
    now = await tx.now()
    if guards and not context.in_caller_tx and any(job.key is not None for job in jobs):
        await tx.run(SHORT_WAIT)
    keys = await lock_keys(tx, jobs, pinned, now)
    marked = {namespace_of(lane) for lane, guard in guards.items() if guard.soft_limit}
    with_workers = await namespaces_with_workers(
        tx, marked, context.process.lease_time.now()
    )
    known = AdmissionInput(
        now=now,
        guards=guards,
        locked_lanes=frozenset(lanes),
        namespaces_with_workers=frozenset(with_workers),
        stored=await find_stored(tx, jobs, keys, again=again),
        held=keys.held,
        locked_jobs=keys.locked,
    )
    plan = Admission(
        known,
        in_caller_tx=context.in_caller_tx,
        has_fixed_snapshot=context.has_fixed_snapshot,
        enters_full=enters_full,
    )
    answers = plan.enqueue(jobs, calls)
    await write_admitted(context, tx, plan, keys, again=again)
    return answers


async def find_stored(
    tx: PostgresTransaction, jobs: Sequence[NewJob], keys: LockedKeys, *, again: bool
) -> dict[bytes, StoredState]:
    deep = {job.id: again for job in jobs}
    deep |= dict.fromkeys((hold.id for hold in keys.held.values()), True)
    rows = await tx.rows(FIND, list(deep), list(deep.values()))
    return {job_id: StoredState(*others) for job_id, *others in rows}


async def write_admitted(
    context: PostgresContext,
    tx: PostgresTransaction,
    plan: Admission,
    keys: LockedKeys,
    *,
    again: bool,
) -> None:
    drafts = plan.drafts.values()
    new = [draft for draft in drafts if draft.is_new]
    old = [draft for draft in drafts if not draft.is_new]
    now = plan.known.now
    new_lanes = sorted({draft.lane for draft in drafts} - context.known_lanes)
    if context.in_caller_tx:
        await record_entered(tx, plan.entered)
    else:
        await change_depths(tx, plan.entered)
        await clear_soft_mark(tx, *plan.stale_soft_marks)
    if old:
        await rewrite(tx, old, keys, now, new_lanes)
    if new:
        *columns, _made = draft_columns(new)
        if await tx.value(INSERT, *columns, now, new_lanes) != len(new):
            raise StaleRead
        ids = [draft.id for draft in new]
        if await tx.rows(RECHECK, ids, again):
            raise StaleRead
        if again:
            await tx.rows(MARK_REPEATED, ids, now + REPEATED_SECONDS)
    await write_keys(tx, plan, keys)
    for draft in drafts:
        tx.wake(draft.lane)
    tx.after_commit.append(lambda: context.known_lanes.update(new_lanes))
    tx.after_commit.append(lambda: lower_watermarks(context, drafts))


async def rewrite(
    tx: PostgresTransaction,
    old: list[Draft],
    keys: LockedKeys,
    now: float,
    new_lanes: list[str],
) -> None:
    if not keys.locked.issuperset(draft.id for draft in old):
        # The key has a new holder, and lane rows must be locked before keys: start again.
        raise StaleRead
    *columns, _key, modes, _made = draft_columns(old)
    if await tx.value(REWRITE, *columns, modes, now, new_lanes) != len(old):
        raise StaleRead


def draft_columns(drafts: Iterable[Draft]) -> list[list[Any]]:
    """Convert drafts to the arrays of a statement, without fields that are not stored."""
    _is_new, _state, *columns = zip(*drafts, strict=True)
    return [list(column) for column in columns]


async def write_keys(
    tx: PostgresTransaction, plan: Admission, keys: LockedKeys
) -> None:
    """Write the final holders; free a key that was locked but not taken."""
    news = {k: hold for k, hold in plan.holds.items() if keys.taken.get(k) != hold}
    await take_keys(tx, news)
    unused = [(k, hold.id) for k, hold in keys.taken.items() if k not in plan.holds]
    await free_keys(tx, unused)
