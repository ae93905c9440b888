"""Accept jobs under locks: lock, read, decide in memory, write.

For calls that meet a guarded queue, a held key, an id that is already stored, or that have
jobs tied to logs or with an expiry. Every transaction locks in this order: guarded queues, lane rows, keys,
heads of logs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from durio.model.errors import StoreUnavailable
from durio.model.job import BLOCKED, NewJob
from durio.model.names import namespace_of
from durio.model.quantities import counted
from durio.ports.enqueue import Enqueued
from durio.stores.job_rules import expiry_puts
from durio.stores.postgres.admission import Admission, AdmissionInput, StaleRead
from durio.stores.postgres.bounds import (
    change_depths,
    clear_soft_mark,
    lock_guards,
    namespaces_with_workers,
    read_guards,
    record_entered,
)
from durio.stores.postgres.connections import LockWait
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.drafts import Draft, StoredState
from durio.stores.postgres.driver import BRIEF_WAIT
from durio.stores.postgres.ended_waits import WaitsEnded
from durio.stores.postgres.enqueue_fast import lower_watermarks
from durio.stores.postgres.gates import give_back
from durio.stores.postgres.keys import (
    LockedKeys,
    free_keys,
    holder_lanes,
    keys_to_pin,
    lock_keys,
    take_keys,
)
from durio.stores.postgres.logs import settle_gates_after, write_entries
from durio.stores.postgres.records import write_puts
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction
from durio.stores.postgres.waits import insert_waits

FIND = statement("find_stored_jobs")
INSERT = statement("insert_job")
REWRITE = statement("rewrite_job")
REWRITE_TIED = statement("rewrite_tied_job")
READ_STATES = statement("read_states")
RECHECK = statement("recheck_repeated")
MARK_REPEATED = statement("mark_repeated")

# How late a first try may arrive after its repeat: longer than any network keeps a lost
# connection alive.
REPEATED_SECONDS = 3600.0
# Used for keys while a queue is locked, because a long transaction may hold the key.
SHORT_WAIT = f"set local lock_timeout = '{BRIEF_WAIT}'"
TRIES = 10


class ChangedConcurrently(StoreUnavailable):
    """Other transactions changed the same jobs and keys during every try."""


async def enqueue_locked(
    context: PostgresContext,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    lock_wait: LockWait = LockWait.LONG,
    *,
    again: bool,
) -> list[Enqueued]:
    """Lock, read, decide, write; start again after a concurrent change."""

    async def work(tx: PostgresTransaction) -> tuple[list[Enqueued], WaitsEnded]:
        answers = await enqueue_jobs(context, tx, jobs, calls, again=again)
        ended = await write_entries(tx, context, is_patient=True)
        return await with_ended_waits(tx, answers, ended), ended

    for _ in range(TRIES):
        try:
            answers, ended = await context.connections.write(work, lock_wait=lock_wait)
        except StaleRead:
            continue
        await settle_gates_after(context, ended)
        return answers
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
    enters_closed: bool = False,
) -> list[Enqueued]:
    """Lock, read, decide and write in this transaction; raises StaleRead to start again.

    The caller calls `write_entries` afterwards, which lets jobs go whose wait is over.
    """
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
        enters_closed=enters_closed,
    )
    answers = plan.enqueue(jobs, calls)
    await write_admitted(context, tx, plan, keys, again=again)
    await write_puts(tx, expiry_puts(jobs, answers))
    return answers


async def with_ended_waits(
    tx: PostgresTransaction, answers: list[Enqueued], ended: WaitsEnded
) -> list[Enqueued]:
    """Return the answers with the states of jobs that need not wait."""
    blocked = [
        one.id
        for one in answers
        if (one.created or one.replaced) and one.state == BLOCKED
    ]
    if not blocked or not ended.jobs:
        return answers
    states = {row[0]: row[1] for row in await tx.rows(READ_STATES, blocked)}
    return [one._replace(state=states.get(one.id, one.state)) for one in answers]


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
    if plan.payloads:
        await rewrite_tied(tx, plan.payloads, keys)
    if new:
        await insert(tx, new, now, new_lanes, again=again)
    await write_keys(tx, plan, keys)
    for draft in drafts:
        tx.wake(draft.lane)
    tx.after_commit.append(lambda: context.known_lanes.update(new_lanes))
    tx.after_commit.append(lambda: lower_watermarks(context, drafts))


async def insert(
    tx: PostgresTransaction,
    new: Sequence[Draft],
    now: float,
    new_lanes: list[str],
    *,
    again: bool,
) -> None:
    *columns, _made = draft_columns(new)
    if await tx.value(INSERT, *columns, now, new_lanes) != len(new):
        raise StaleRead
    ids = [draft.id for draft in new]
    if await tx.rows(RECHECK, ids, again):
        raise StaleRead
    if again:
        await tx.rows(MARK_REPEATED, ids, now + REPEATED_SECONDS)
    await insert_waits(tx, [draft.wait for draft in new if draft.wait is not None])
    tx.gates.entering += entering_jobs(new)


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
    *columns, _key, modes, ties, _made = draft_columns(old)
    ((count, *before),) = await tx.rows(REWRITE, *columns, modes, ties, now, new_lanes)
    if count != len(old):
        raise StaleRead
    for ties_before, held in zip(*before, strict=True):
        give_back(tx, ties_before, held)
    tx.gates.entering += entering_jobs(old)


def entering_jobs(drafts: Iterable[Draft]) -> list[bytes]:
    """Return the jobs that stand before a gate now."""
    return [
        draft.id for draft in drafts if draft.state == BLOCKED and draft.wait is None
    ]


async def rewrite_tied(
    tx: PostgresTransaction, payloads: Mapping[bytes, bytes], keys: LockedKeys
) -> None:
    """Give nodes of plans new arguments."""
    if not keys.locked.issuperset(payloads):
        raise StaleRead
    ids = sorted(payloads)
    rows = await tx.rows(REWRITE_TIED, ids, [payloads[job_id] for job_id in ids])
    if len(rows) != len(ids):
        raise StaleRead


def draft_columns(drafts: Iterable[Draft]) -> list[list[Any]]:
    """Convert drafts to the arrays of a statement, without fields that are not stored."""
    _is_new, _state, _wait, *columns = zip(*drafts, strict=True)
    return [list(column) for column in columns]


async def write_keys(
    tx: PostgresTransaction, plan: Admission, keys: LockedKeys
) -> None:
    """Write the final holders; free a key that was locked but not taken."""
    news = {k: hold for k, hold in plan.holds.items() if keys.taken.get(k) != hold}
    await take_keys(tx, news)
    unused = [(k, hold.id) for k, hold in keys.taken.items() if k not in plan.holds]
    await free_keys(tx, unused)
