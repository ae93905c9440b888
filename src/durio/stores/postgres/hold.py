"""Keys of jobs that are sent back: taken again, unless another job has one by now.

A key may be in a transaction that lasts, as a row that nobody else can see yet. There is no
lock to pass over then, only one that is not free in time: so keys are tried, and the time is
short. One such key must not keep all the others from their jobs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from durio.model.keys import WAITING, WINDOW, digest_of
from durio.stores.postgres.driver import DriverError
from durio.stores.postgres.keys import (
    LOCK,
    READ,
    Hold,
    columns_of,
    free_keys,
    take_keys,
)
from durio.stores.postgres.opening import LOCK_WAIT
from durio.stores.postgres.sqlstate import LOCKED
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

FIND_HOLDERS = statement("control_find_holders")
BRIEF, USUAL = (f"set local lock_timeout = '{wait}'" for wait in ("1ms", LOCK_WAIT))
BEGIN, END = "savepoint keys", "release savepoint keys"
UNDO = f"rollback to savepoint keys; {END}"


class Keyed(NamedTuple):
    """A final job that came with a key."""

    key: bytes
    mode: int
    payload: bytes
    id: bytes


class Taken(NamedTuple):
    """Jobs that do not get their keys again."""

    refused: set[bytes]  # another job has it
    held: set[bytes]  # somebody's transaction has it: it is not known yet who gets it


async def take_keys_again(
    tx: Transaction, rows: Sequence[Sequence[Any]], payload: bytes | None
) -> Taken:
    """The keys that jobs came with, for those who may have them; returns the others.

    All keys are locked first, in the order that everybody keeps, and those that are free
    taken with the lock; only then it is asked who answers for the others.
    """
    jobs = [Keyed(*row) for row in rows]
    if not jobs:
        return Taken(set(), set())
    wanted: dict[bytes, Hold] = {}
    for job in sorted(jobs, key=lambda job: job.mode == WINDOW):
        digest = digest_of(job.payload if payload is None else payload)
        wanted.setdefault(job.key, Hold(job.id, job.mode, digest, None))
    free, busy = await lock_briefly(tx, wanted)
    known = [key for key in wanted if key not in free and key not in busy]
    held = {key: Hold(*others) for key, *others in await tx.rows(READ, known)}
    able = [job for job in jobs if job.key not in busy]
    refused, takers = await judged(tx, able, held)
    await take_keys(tx, {key: wanted[key] for key in takers if key not in free})
    # A window that is over is over: what the lock took of it is let go again.
    idle = [(key, wanted[key].id) for key in free if key not in takers]
    await free_keys(tx, idle)
    return Taken(refused, {job.id for job in jobs if job.key in busy})


async def lock_briefly(
    tx: Transaction, wanted: Mapping[bytes, Hold]
) -> tuple[set[bytes], set[bytes]]:
    """Lock keys, in their order; which were free, and which somebody does not let go.

    A statement that fails does not say by which of its keys: fewer are tried then, down to
    one, and twice as many after each that worked.
    """
    free, busy = set[bytes](), set[bytes]()
    keys, first = sorted(wanted), 0
    size = len(keys)
    await tx.run(BRIEF)
    while first < len(keys):
        some = keys[first : first + size]
        await tx.run(BEGIN)
        try:
            rows = await tx.rows(LOCK, *columns_of({key: wanted[key] for key in some}))
        except DriverError as error:
            if error.state != LOCKED:
                raise
            await tx.run(UNDO)
            if len(some) == 1:
                busy |= set(some)
                first += 1
            size = max(1, len(some) // 2)
            continue
        await tx.run(END)
        free |= {key for (key,) in rows}
        first, size = first + len(some), size * 2
    await tx.run(USUAL)
    return free, busy


async def judged(
    tx: Transaction, jobs: Sequence[Keyed], held: dict[bytes, Hold]
) -> tuple[set[bytes], set[bytes]]:
    """Who is refused, and which keys get a new holder; in the order of the jobs."""
    owners = await who_answer(tx, held)
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


async def who_answer(tx: Transaction, held: dict[bytes, Hold]) -> dict[bytes, bytes]:
    """Key -> the job that answers for it now: a live one, or one within its window."""
    if not held:
        return {}
    now, ids = await tx.now(), [hold.id for hold in held.values()]
    rows = await tx.rows(FIND_HOLDERS, ids)
    live = {job_id: is_running for job_id, is_live, is_running in rows if is_live}
    over = {job_id for job_id, is_live, _ in rows if not is_live}
    return {
        key: hold.id
        for key, hold in held.items()
        # One that has begun may not have been able to let go of its key.
        if (hold.id in live and not (live[hold.id] and hold.mode == WAITING))
        or (hold.id in over and hold.until is not None and hold.until > now)
    }
