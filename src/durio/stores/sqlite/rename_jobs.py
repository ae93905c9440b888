"""Give jobs another task, and their keys the hash of its name."""

from durio.model.job import DONE
from durio.stores.job_rules import renamed_key
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

FIND_TASK_AND_KEY = statement("find_task_and_key")
RENAME_JOB = statement("rename_job")
FIND_KEY_HOLDER = statement("find_key_holder")
RENAME_KEY = statement("rename_key")
FREE_KEY = statement("free_key")


def rename_job(tx: SqliteTransaction, job_id: bytes, task: str) -> None:
    """Rename a job, unless its key cannot be renamed too."""
    _, key, opts = tx.db.rows(FIND_TASK_AND_KEY, (job_id,))[0]
    new_key: bytes | None = None
    if key is not None:
        new_key = renamed_key(opts, task)
        if new_key is None or not rename_key(tx, job_id, key, new_key):
            return
    tx.db.rows(RENAME_JOB, (job_id, task, new_key))


def rename_key(
    tx: SqliteTransaction, job_id: bytes, key: bytes, new_key: bytes
) -> bool:
    """Move a hold to the new key; return False if another job holds that key."""
    holders = tx.db.rows(FIND_KEY_HOLDER, (key,))
    if key == new_key or not holders or holders[0][0] != job_id:
        return True
    for other, state, until, *_ in tx.db.rows(FIND_KEY_HOLDER, (new_key,)):
        in_window = until is not None and until > tx.now
        if state is not None and (state < DONE or in_window):
            return False
        tx.db.rows(FREE_KEY, (new_key, other))
    tx.db.rows(RENAME_KEY, (key, new_key, job_id))
    return True


def has_task(tx: SqliteTransaction, job_id: bytes, task: str) -> bool:
    return tx.db.rows(FIND_TASK_AND_KEY, (job_id,))[0][0] == task
