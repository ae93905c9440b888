"""Idempotency keys in PostgreSQL: find a holder, take a key, free it.

A key is one row. A transaction that changes its holder locks that row first, and locks
several rows in the order of the keys. So the second of two enqueues of one key waits for
the first, and its result depends on the first. `model.keys.key_answer` decides it, in Python
(admission.py).

Retried jobs take their keys again, unless another job holds the key by then.

An open transaction may hold a key as a row that others cannot see yet. Such a lock cannot
be skipped; it can only time out. So locks are tried with a short timeout, and one locked
key does not keep other jobs from their keys.

Some holders cannot free their keys when they end, because another transaction has locked
them at that moment. These keys do no harm: a finished job no longer holds its key, and the
next enqueue takes it. But most keys are never used again, so the leader scans all keys, a
few at a time, and frees them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from durio.model.job import KeyClaim, NewJob
from durio.model.keys import REPLACE, WAITING, WINDOW, payload_digest
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.driver import LOCK_WAIT, LOCKED, DriverError
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

FIND_LANES = statement("find_holder_lanes")
LOCK_HOLDERS = statement("lock_holders")
LOCK = statement("lock_keys")
READ = statement("read_keys")
TAKE = statement("take_key")
FREE = statement("free_key")


class KeyHold(NamedTuple):
    """A job's hold on a key, as it is stored."""

    id: bytes
    mode: int
    digest: bytes
    until: float | None


class LockedKeys(NamedTuple):
    held: dict[bytes, KeyHold]  # by other jobs, before this enqueue
    taken: dict[bytes, KeyHold]  # keys that were free and that this transaction took
    locked: frozenset[bytes] = frozenset()  # waiting holders whose rows are locked


def new_hold(job_id: bytes, claim: KeyClaim, now: float) -> KeyHold:
    """Return the hold of a job that takes the key now."""
    until = now + claim.ttl_seconds if claim.mode == WINDOW else None
    return KeyHold(job_id, claim.mode, claim.digest, until)


def keys_to_pin(jobs: Iterable[NewJob], *, in_caller_tx: bool) -> list[bytes]:
    """Return the keys whose waiting holder must not start before this transaction ends.

    With REPLACE the holder is rewritten. In a caller's transaction this also includes a
    WAITING holder: it must see what the caller commits.
    """
    modes = (REPLACE, WAITING) if in_caller_tx else (REPLACE,)
    claims = (job.key for job in jobs)
    return sorted({c.key for c in claims if c is not None and c.mode in modes})


async def holder_lanes(tx: PostgresTransaction, keys: Sequence[bytes]) -> set[str]:
    """Return the current lanes of the holders, without locks."""
    if not keys:
        return set()
    return {lane for (lane,) in await tx.rows(FIND_LANES, keys)}


async def lock_keys(
    tx: PostgresTransaction, jobs: Sequence[NewJob], pinned: Sequence[bytes], now: float
) -> LockedKeys:
    """Lock all keys of these jobs, and read the holders of those that are held.

    The waiting holders of `pinned` keys are locked first, because lanes come before keys.
    """
    wanted: dict[bytes, KeyHold] = {}
    for job in jobs:
        if job.key is not None and job.key.key not in wanted:
            wanted[job.key.key] = new_hold(job.id, job.key, now)
    if not wanted:
        return LockedKeys({}, {})
    locked: frozenset[bytes] = frozenset()
    if pinned:
        locked = frozenset(row[0] for row in await tx.rows(LOCK_HOLDERS, pinned))
    free = {key for (key,) in await tx.rows(LOCK, *hold_columns(wanted))}
    taken = {key: hold for key, hold in wanted.items() if key in free}
    held: dict[bytes, KeyHold] = {}
    if len(taken) < len(wanted):
        for key, *others in await tx.rows(READ, [k for k in wanted if k not in free]):
            held[key] = KeyHold(*others)
    return LockedKeys(held, taken, locked)


def hold_columns(holds: Mapping[bytes, KeyHold]) -> list[list[object]]:
    """Convert holds to the arrays of a statement, in the order of their keys."""
    rows = [(key, *holds[key]) for key in sorted(holds)]
    return [list(column) for column in zip(*rows, strict=True)]


async def take_keys(tx: PostgresTransaction, holds: Mapping[bytes, KeyHold]) -> None:
    """Replace the holders of keys whose rows are locked."""
    if holds:
        await tx.rows(TAKE, *hold_columns(holds))


async def free_keys(
    tx: PostgresTransaction, held: Collection[tuple[bytes, bytes]]
) -> None:
    """Free (key, id) pairs; keep a key that another job holds by now.

    A key that another transaction has locked stays with its old holder, which has no claim
    to it any more: the next enqueue takes it, or `free_unused_keys` frees it.
    """
    if held:
        pairs = sorted(held)
        await tx.rows(FREE, [key for key, _ in pairs], [job_id for _, job_id in pairs])


def free_at_end(tx: PostgresTransaction, held: Collection[tuple[bytes, bytes]]) -> None:
    """Free keys at the commit, all keys of the transaction in one statement."""
    if held and not tx.freed:
        tx.before_commit.insert(0, lambda: free_keys(tx, tx.freed))
    tx.freed += held


FIND_HOLDER_STATES = statement("find_holder_states")
SHORT_LOCK_WAIT, USUAL_LOCK_WAIT = (
    f"set local lock_timeout = '{wait}'" for wait in ("1ms", LOCK_WAIT)
)
SAVEPOINT, RELEASE_SAVEPOINT = "savepoint keys", "release savepoint keys"
ROLLBACK_SAVEPOINT = f"rollback to savepoint keys; {RELEASE_SAVEPOINT}"


class KeyedJob(NamedTuple):
    key: bytes
    mode: int
    payload: bytes
    id: bytes


class KeysNotTaken(NamedTuple):
    """Jobs that do not get their keys back."""

    refused: set[bytes]  # another job holds the key
    held: set[bytes]  # an open transaction holds the key; its holder is not known yet


async def retake_keys(
    tx: PostgresTransaction, rows: Sequence[Sequence[Any]], payload: bytes | None
) -> KeysNotTaken:
    """Take again the keys that jobs had; return the jobs that do not get theirs.

    All keys are locked first, in the order that all transactions keep, and free ones are
    taken with the lock. Only then are the holders of the others read.
    """
    jobs = [KeyedJob(*row) for row in rows]
    if not jobs:
        return KeysNotTaken(set(), set())
    wanted: dict[bytes, KeyHold] = {}
    for job in sorted(jobs, key=lambda job: job.mode == WINDOW):
        digest = payload_digest(job.payload if payload is None else payload)
        wanted.setdefault(job.key, KeyHold(job.id, job.mode, digest, None))
    free, busy = await try_lock_keys(tx, wanted)
    held = await read_holds(tx, [key for key in wanted if key not in free | busy])
    able = [job for job in jobs if job.key not in busy]
    refused, takers = await decide_holders(tx, able, held)
    await take_keys(tx, {key: wanted[key] for key in takers if key not in free})
    # A window that has ended is not opened again: free the keys that the lock took for it.
    idle = [(key, wanted[key].id) for key in free if key not in takers]
    await free_keys(tx, idle)
    return KeysNotTaken(refused, {job.id for job in jobs if job.key in busy})


async def read_holds(
    tx: PostgresTransaction, keys: Sequence[bytes]
) -> dict[bytes, KeyHold]:
    """Return the holds on these keys; the caller has locked the keys."""
    return {key: KeyHold(*others) for key, *others in await tx.rows(READ, keys)}


async def try_lock_keys(
    tx: PostgresTransaction, wanted: Mapping[bytes, KeyHold]
) -> tuple[set[bytes], set[bytes]]:
    """Lock keys in their order; return those that were free, and those that timed out.

    A failed statement does not say which key was locked. So fewer keys are tried then, down
    to one, and twice as many after each success.
    """
    free, busy = set[bytes](), set[bytes]()
    keys, first = sorted(wanted), 0
    size = len(keys)
    await tx.run(SHORT_LOCK_WAIT)
    while first < len(keys):
        some = keys[first : first + size]
        await tx.run(SAVEPOINT)
        try:
            rows = await tx.rows(
                LOCK, *hold_columns({key: wanted[key] for key in some})
            )
        except DriverError as error:
            if error.state != LOCKED:
                raise
            await tx.run(ROLLBACK_SAVEPOINT)
            if len(some) == 1:
                busy |= set(some)
                first += 1
            size = max(1, len(some) // 2)
            continue
        await tx.run(RELEASE_SAVEPOINT)
        free |= {key for (key,) in rows}
        first, size = first + len(some), size * 2
    await tx.run(USUAL_LOCK_WAIT)
    return free, busy


async def decide_holders(
    tx: PostgresTransaction, jobs: Sequence[KeyedJob], held: dict[bytes, KeyHold]
) -> tuple[set[bytes], set[bytes]]:
    """Return the refused jobs, and the keys that get a new holder; in the order of jobs."""
    owners = await current_holders(tx, held)
    refused: set[bytes] = set()
    takers: set[bytes] = set()
    for job in jobs:
        if owners.get(job.key, job.id) != job.id:
            refused.add(job.id)
            continue
        holder = held.get(job.key)
        if job.mode != WINDOW:
            takers.add(job.key)
        if job.mode != WINDOW or (holder is not None and holder.id == job.id):
            owners[job.key] = job.id  # from here on this job holds the key
    return refused, takers


async def current_holders(
    tx: PostgresTransaction, held: dict[bytes, KeyHold]
) -> dict[bytes, bytes]:
    """Return the job that holds each key: a live job, or one within its window."""
    if not held:
        return {}
    now, ids = await tx.now(), [hold.id for hold in held.values()]
    rows = await tx.rows(FIND_HOLDER_STATES, ids)
    live = {job_id: is_running for job_id, is_live, is_running in rows if is_live}
    over = {job_id for job_id, is_live, _ in rows if not is_live}
    return {
        key: hold.id
        for key, hold in held.items()
        # A job that has started may have been unable to free its key.
        if (hold.id in live and not (live[hold.id] and hold.mode == WAITING))
        or (hold.id in over and hold.until is not None and hold.until > now)
    }


NEXT_KEYS = statement("lock_next_keys")
FREE_UNUSED = statement("free_unused_keys")

UNUSED_REST_SECONDS = 60.0
UNUSED_BATCH_MAX = 1000


async def free_unused_keys(context: PostgresContext) -> None:
    """Scan the next few keys, about once a minute, and free unused ones."""
    walk, now = context.process.unused_keys, context.clock.monotonic()
    if now < walk.next_at:
        return
    walk.next_at = now + UNUSED_REST_SECONDS
    walk.after = await context.connections.write(
        lambda tx: free_unused_after(tx, walk.after)
    )


async def free_unused_after(tx: PostgresTransaction, after: bytes) -> bytes:
    """Free unused keys after `after`; return the last key that was scanned.

    Keys are checked after they are locked, because one may have got a new holder.
    """
    ((keys, last),) = await tx.rows(NEXT_KEYS, after, UNUSED_BATCH_MAX)
    if keys:
        await tx.rows(FREE_UNUSED, keys)
    return last
