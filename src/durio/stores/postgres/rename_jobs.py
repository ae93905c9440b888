"""Give jobs another task, and their keys the hash of its name.

The caller has locked the jobs. Old and new keys are locked together, in their order. A job
stays as it is when another transaction keeps one of them locked, when another job has the
new key, or when the text of its key is not stored.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from durio.model.keys import WAITING
from durio.stores.job_rules import renamed_key
from durio.stores.postgres.keys import (
    KeyHold,
    current_holders,
    free_keys,
    read_holds,
    take_keys,
    try_lock_keys,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

LOCK_JOBS = statement("lock_jobs")
FIND_KEYS_OF_FINAL_JOBS = statement("find_keys_of_final_jobs")
RENAME_WAITING = statement("rename_job")
RENAME_FINAL = statement("rename_final_jobs")
FIND_OTHER_TASKS = statement("find_jobs_of_other_tasks")


class RenamedKey(NamedTuple):
    """The key of a job, under the old and the new name."""

    id: bytes
    key: bytes
    new_key: bytes


async def rename_locked_jobs(
    tx: PostgresTransaction, ids: Sequence[bytes], task: str, *, are_final: bool
) -> list[bytes]:
    """Rename these locked jobs; return those whose keys are not locked by others."""
    if not ids:
        return []
    find = FIND_KEYS_OF_FINAL_JOBS if are_final else LOCK_JOBS
    new_keys: dict[bytes, bytes | None] = {}
    keyed: list[RenamedKey] = []
    for job_id, _, opts, key, *_ in await tx.rows(find, sorted(ids)):
        if key is None:
            new_keys[job_id] = None
        elif (new_key := renamed_key(opts, task)) is not None:
            keyed.append(RenamedKey(job_id, key, new_key))
    renamed, busy = await rename_keys(tx, keyed)
    new_keys |= {one.id: one.new_key for one in renamed}
    if new_keys:
        rename = RENAME_FINAL if are_final else RENAME_WAITING
        await tx.rows(rename, list(new_keys), list(new_keys.values()), task)
    return [job_id for job_id in ids if job_id not in busy]


async def jobs_not_renamed(
    tx: PostgresTransaction, ids: Collection[bytes], task: str
) -> set[bytes]:
    """Return the jobs that `rename_locked_jobs` did not rename."""
    rows = await tx.rows(FIND_OTHER_TASKS, list(ids), task) if ids else ()
    return {row[0] for row in rows}


async def rename_keys(
    tx: PostgresTransaction, keyed: Sequence[RenamedKey]
) -> tuple[list[RenamedKey], set[bytes]]:
    """Move the holds of these jobs to their new keys.

    Return the jobs that may be renamed, and those whose keys are locked. A job that does
    not hold its key any more only gets the new one for a later retry.
    """
    if not keyed:
        return [], set()
    # A free key is taken with the lock: by a hold that is replaced or freed below.
    locks: dict[bytes, KeyHold] = {}
    for one in keyed:
        for key in (one.key, one.new_key):
            locks.setdefault(key, KeyHold(one.id, WAITING, b"", None))
    free, busy = await try_lock_keys(tx, locks)
    held = await read_holds(tx, [key for key in locks if key not in free | busy])
    owners = await current_holders(tx, held)
    taken: dict[bytes, KeyHold] = {}
    freed = {(key, locks[key].id) for key in free}
    renamed: list[RenamedKey] = []
    for one in keyed:
        if one.key in busy or one.new_key in busy:
            continue
        hold = held.get(one.key)
        if hold is not None and hold.id == one.id and one.key != one.new_key:
            if one.new_key in taken or owners.get(one.new_key, one.id) != one.id:
                continue
            taken[one.new_key] = hold
            freed.discard((one.new_key, locks[one.new_key].id))
            freed.add((one.key, one.id))
        renamed.append(one)
    await take_keys(tx, taken)
    await free_keys(tx, freed)
    return renamed, {one.id for one in keyed if {one.key, one.new_key} & busy}
