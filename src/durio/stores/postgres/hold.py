"""Keys of jobs that are sent back: taken again, unless another job has one by now."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from durio.model.keys import WAITING, WINDOW, digest_of
from durio.stores.postgres.keys import (
    LOCK,
    READ,
    Hold,
    columns_of,
    free_keys,
    take_keys,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

FIND_HOLDERS = statement("control_find_holders")


class Keyed(NamedTuple):
    """A final job that came with a key."""

    key: bytes
    mode: int
    payload: bytes
    id: bytes


async def take_keys_again(
    tx: Transaction, rows: Sequence[Sequence[Any]], payload: bytes | None
) -> set[bytes]:
    """The keys that jobs came with, for those who may have them; returns the others.

    All keys are locked first, in the order that everybody keeps, and those that are free
    taken with the lock; only then it is asked who answers for the others.
    """
    jobs = [Keyed(*row) for row in rows]
    if not jobs:
        return set()
    wanted: dict[bytes, Hold] = {}
    for job in sorted(jobs, key=lambda job: job.mode == WINDOW):
        digest = digest_of(job.payload if payload is None else payload)
        wanted.setdefault(job.key, Hold(job.id, job.mode, digest, None))
    free = {key for (key,) in await tx.rows(LOCK, *columns_of(wanted))}
    held = {
        key: Hold(*others)
        for key, *others in await tx.rows(READ, [k for k in wanted if k not in free])
    }
    refused, takers = await judged(tx, jobs, held)
    await take_keys(tx, {key: wanted[key] for key in takers if key not in free})
    # A window that is over is over: what the lock took of it is let go again.
    idle = [(key, wanted[key].id) for key in free if key not in takers]
    await free_keys(tx, idle)
    return refused


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
