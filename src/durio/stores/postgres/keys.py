"""Idempotency keys in PostgreSQL: who holds one, taking it, and letting go.

A key is one row, and whoever wants to change its holder locks that row first, in the order
of the keys. So of two enqueues of one key the second waits, and is judged by what the
first has made of it. `model.keys.answer` judges, in Python (admission.py).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from durio.model.job import KeyClaim, NewJob
from durio.model.keys import REPLACE, WAITING, WINDOW
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

FIND_LANES = statement("key_find_lanes")
LOCK_HOLDERS = statement("key_lock_holders")
LOCK = statement("key_lock")
READ = statement("key_read")
TAKE = statement("key_take")
FREE = statement("key_free")


class Hold(NamedTuple):
    """A job's hold on a key, as it is stored."""

    id: bytes
    mode: int
    digest: bytes
    until: float | None


class Keys(NamedTuple):
    """The keys of an enqueue, locked."""

    held: dict[bytes, Hold]  # by others, before this enqueue
    taken: dict[bytes, Hold]  # were free: the lock is a hold of our own
    locked: frozenset[bytes] = frozenset()  # holders that wait, and stay where they are


def hold_of(job_id: bytes, claim: KeyClaim, now: float) -> Hold:
    """What a job's hold is when it takes the key now."""
    until = now + claim.ttl_seconds if claim.mode == WINDOW else None
    return Hold(job_id, claim.mode, claim.digest, until)


def keys_to_stay(jobs: Iterable[NewJob], *, is_users: bool) -> list[bytes]:
    """Keys whose holder must not begin before we are over, if it waits: it is rewritten.

    In a caller's transaction (`is_users`) also one that answers because it waits: it has
    to see what the caller commits.
    """
    modes = (REPLACE, WAITING) if is_users else (REPLACE,)
    claims = (job.key for job in jobs)
    return sorted({c.key for c in claims if c is not None and c.mode in modes})


async def holder_lanes(tx: Transaction, keys: Sequence[bytes]) -> set[str]:
    """Where the holders are now; nothing keeps them there yet."""
    if not keys:
        return set()
    return {lane for (lane,) in await tx.rows(FIND_LANES, keys)}


async def lock_keys(
    tx: Transaction, jobs: Sequence[NewJob], stay: Sequence[bytes], now: float
) -> Keys:
    """Lock all keys of these jobs; who holds those that are held.

    A holder that waits and has to `stay` is locked first: lanes come before keys.
    """
    wanted: dict[bytes, Hold] = {}
    for job in jobs:
        if job.key is not None and job.key.key not in wanted:
            wanted[job.key.key] = hold_of(job.id, job.key, now)
    if not wanted:
        return Keys({}, {})
    locked: frozenset[bytes] = frozenset()
    if stay:
        locked = frozenset(row[0] for row in await tx.rows(LOCK_HOLDERS, stay))
    free = {key for (key,) in await tx.rows(LOCK, *columns_of(wanted))}
    taken = {key: hold for key, hold in wanted.items() if key in free}
    held: dict[bytes, Hold] = {}
    if len(taken) < len(wanted):
        for key, *others in await tx.rows(READ, [k for k in wanted if k not in free]):
            held[key] = Hold(*others)
    return Keys(held, taken, locked)


def columns_of(holds: Mapping[bytes, Hold]) -> list[list[object]]:
    """Holds as the arrays of a statement, in the order of their keys."""
    rows = [(key, *holds[key]) for key in sorted(holds)]
    return [list(column) for column in zip(*rows, strict=True)]


async def take_keys(tx: Transaction, holds: Mapping[bytes, Hold]) -> None:
    """Make these the holders, whoever held the keys before; their rows are locked."""
    if holds:
        await tx.rows(TAKE, *columns_of(holds))


async def free_keys(tx: Transaction, held: Collection[tuple[bytes, bytes]]) -> None:
    """Let go of (key, id); where another job holds the key by now, it keeps it.

    A key that somebody else has locked stays with its old holder, who answers for it no
    more: the next who asks takes it, or the leader lets it go (stray_keys.py).
    """
    if held:
        pairs = sorted(held)
        await tx.rows(FREE, [key for key, _ in pairs], [job_id for _, job_id in pairs])


def free_at_end(tx: Transaction, held: Collection[tuple[bytes, bytes]]) -> None:
    """The same with the commit, at once for all that ends in this transaction."""
    if held and not tx.freed:
        tx.before_commit.insert(0, lambda: free_keys(tx, tx.freed))
    tx.freed += held
