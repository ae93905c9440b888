"""Idempotency keys in PostgreSQL: who holds one, taking it, and letting go.

A key is one row, and whoever wants to change its holder locks that row first, in the order
of the keys. So of two enqueues of one key the second waits, and is judged by what the
first has made of it. `model.keys.answer` judges, in Python (admission.py).

Keys of jobs that are sent back: taken again, unless another job has one by now.

A key may be in a transaction that lasts, as a row that nobody else can see yet. There is no
lock to pass over then, only one that is not free in time: so keys are tried, and the time is
short. One such key must not keep all the others from their jobs.

Keys that their holders left behind, because somebody asked for them at that moment.

They do no harm: a holder that is over does not answer for a key, and the next who asks takes
it. But most keys are never asked for again, so the leader walks over all of them, a few at
a time.
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
    """The keys of an enqueue, locked."""

    held: dict[bytes, KeyHold]  # by others, before this enqueue
    taken: dict[bytes, KeyHold]  # were free: the lock is a hold of our own
    locked: frozenset[bytes] = frozenset()  # holders that wait, and stay where they are


def new_hold(job_id: bytes, claim: KeyClaim, now: float) -> KeyHold:
    """What a job's hold is when it takes the key now."""
    until = now + claim.ttl_seconds if claim.mode == WINDOW else None
    return KeyHold(job_id, claim.mode, claim.digest, until)


def keys_to_pin(jobs: Iterable[NewJob], *, in_caller_tx: bool) -> list[bytes]:
    """Keys whose holder must not begin before we are over, if it waits: it is rewritten.

    In a caller's transaction (`is_users`) also one that answers because it waits: it has
    to see what the caller commits.
    """
    modes = (REPLACE, WAITING) if in_caller_tx else (REPLACE,)
    claims = (job.key for job in jobs)
    return sorted({c.key for c in claims if c is not None and c.mode in modes})


async def holder_lanes(tx: PostgresTransaction, keys: Sequence[bytes]) -> set[str]:
    """Where the holders are now; nothing keeps them there yet."""
    if not keys:
        return set()
    return {lane for (lane,) in await tx.rows(FIND_LANES, keys)}


async def lock_keys(
    tx: PostgresTransaction, jobs: Sequence[NewJob], pinned: Sequence[bytes], now: float
) -> LockedKeys:
    """Lock all keys of these jobs; who holds those that are held.

    A holder that waits and has to `stay` is locked first: lanes come before keys.
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
    """Holds as the arrays of a statement, in the order of their keys."""
    rows = [(key, *holds[key]) for key in sorted(holds)]
    return [list(column) for column in zip(*rows, strict=True)]


async def take_keys(tx: PostgresTransaction, holds: Mapping[bytes, KeyHold]) -> None:
    """Make these the holders, whoever held the keys before; their rows are locked."""
    if holds:
        await tx.rows(TAKE, *hold_columns(holds))


async def free_keys(
    tx: PostgresTransaction, held: Collection[tuple[bytes, bytes]]
) -> None:
    """Let go of (key, id); where another job holds the key by now, it keeps it.

    A key that somebody else has locked stays with its old holder, who answers for it no
    more: the next who asks takes it, or the leader lets it go.
    """
    if held:
        pairs = sorted(held)
        await tx.rows(FREE, [key for key, _ in pairs], [job_id for _, job_id in pairs])


def free_at_end(tx: PostgresTransaction, held: Collection[tuple[bytes, bytes]]) -> None:
    """The same with the commit, at once for all that ends in this transaction."""
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
    """A final job that came with a key."""

    key: bytes
    mode: int
    payload: bytes
    id: bytes


class KeysNotTaken(NamedTuple):
    """Jobs that do not get their keys again."""

    refused: set[bytes]  # another job has it
    held: set[bytes]  # somebody's transaction has it: it is not known yet who gets it


async def retake_keys(
    tx: PostgresTransaction, rows: Sequence[Sequence[Any]], payload: bytes | None
) -> KeysNotTaken:
    """The keys that jobs came with, for those who may have them; returns the others.

    All keys are locked first, in the order that everybody keeps, and those that are free
    taken with the lock; only then it is asked who answers for the others.
    """
    jobs = [KeyedJob(*row) for row in rows]
    if not jobs:
        return KeysNotTaken(set(), set())
    wanted: dict[bytes, KeyHold] = {}
    for job in sorted(jobs, key=lambda job: job.mode == WINDOW):
        digest = payload_digest(job.payload if payload is None else payload)
        wanted.setdefault(job.key, KeyHold(job.id, job.mode, digest, None))
    free, busy = await try_lock_keys(tx, wanted)
    known = [key for key in wanted if key not in free and key not in busy]
    held = {key: KeyHold(*others) for key, *others in await tx.rows(READ, known)}
    able = [job for job in jobs if job.key not in busy]
    refused, takers = await decide_holders(tx, able, held)
    await take_keys(tx, {key: wanted[key] for key in takers if key not in free})
    # A window that is over is over: what the lock took of it is let go again.
    idle = [(key, wanted[key].id) for key in free if key not in takers]
    await free_keys(tx, idle)
    return KeysNotTaken(refused, {job.id for job in jobs if job.key in busy})


async def try_lock_keys(
    tx: PostgresTransaction, wanted: Mapping[bytes, KeyHold]
) -> tuple[set[bytes], set[bytes]]:
    """Lock keys, in their order; which were free, and which somebody does not let go.

    A statement that fails does not say by which of its keys: fewer are tried then, down to
    one, and twice as many after each that worked.
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
    """Who is refused, and which keys get a new holder; in the order of the jobs."""
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
            owners[job.key] = job.id  # it is live from here on
    return refused, takers


async def current_holders(
    tx: PostgresTransaction, held: dict[bytes, KeyHold]
) -> dict[bytes, bytes]:
    """Key -> the job that answers for it now: a live one, or one within its window."""
    if not held:
        return {}
    now, ids = await tx.now(), [hold.id for hold in held.values()]
    rows = await tx.rows(FIND_HOLDER_STATES, ids)
    live = {job_id: is_running for job_id, is_live, is_running in rows if is_live}
    over = {job_id for job_id, is_live, _ in rows if not is_live}
    return {
        key: hold.id
        for key, hold in held.items()
        # One that has begun may not have been able to let go of its key.
        if (hold.id in live and not (live[hold.id] and hold.mode == WAITING))
        or (hold.id in over and hold.until is not None and hold.until > now)
    }


NEXT_KEYS = statement("lock_next_keys")
FREE_UNUSED = statement("free_unused_keys")

UNUSED_REST_SECONDS = 60.0
UNUSED_BATCH_MAX = 1000


async def free_unused_keys(context: PostgresContext) -> None:
    """The next few, about once a minute."""
    walk, now = context.process.unused_keys, context.clock.monotonic()
    if now < walk.next_at:
        return
    walk.next_at = now + UNUSED_REST_SECONDS
    walk.after = await context.connections.write(
        lambda tx: free_unused_after(tx, walk.after)
    )


async def free_unused_after(tx: PostgresTransaction, after: bytes) -> bytes:
    """Those among the keys behind `after`; the last one of all that were looked at.

    They are looked at after they are locked: one may have got a new holder before.
    """
    ((keys, last),) = await tx.rows(NEXT_KEYS, after, UNUSED_BATCH_MAX)
    if keys:
        await tx.rows(FREE_UNUSED, keys)
    return last
