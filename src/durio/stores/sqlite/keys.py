"""Idempotency keys: which job holds a key, how a job takes it, and when it is freed."""

from typing import NamedTuple

from durio.model.job import CANCELLED, DONE, STATE_BY_CODE, KeyClaim
from durio.model.keys import WINDOW, KeyHolder
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

FIND_KEY_HOLDER = statement("find_key_holder")
TAKE_KEY = statement("take_key")
FREE_KEY = statement("free_key")
EXTEND_TO_WINDOW = statement("extend_to_window")


class HeldKey(NamedTuple):
    """The job that holds a key, with the fields that `model.keys.key_answer` needs."""

    id: bytes
    state_code: int
    lane: str
    created_at: float  # of the holder; debounce counts from this time
    seq: int
    ties: str | None
    holder: KeyHolder


def find_holder(tx: SqliteTransaction, claim: KeyClaim) -> HeldKey | None:
    rows = tx.db.rows(FIND_KEY_HOLDER, (claim.key,))
    if not rows:
        return None
    job_id, code, until, digest, created_at, lane, seq, ties = rows[0]
    holder = KeyHolder(
        state=None if code is None else STATE_BY_CODE[code],
        in_window=until is not None and until > tx.now,
        same_args=digest == claim.digest,
    )
    made = created_at or 0.0
    return HeldKey(job_id, code or 0, lane or "", made, seq or 0, ties, holder)


def take_key(tx: SqliteTransaction, job_id: bytes, claim: KeyClaim) -> None:
    """Make a job the holder; it replaces any earlier holder."""
    until = tx.now + claim.ttl_seconds if claim.mode == WINDOW else None
    tx.db.rows(TAKE_KEY, (claim.key, job_id, claim.mode, claim.digest, until))


def free_at_end(
    tx: SqliteTransaction, job_id: bytes, key: bytes, mode: int, state: int
) -> None:
    """Free the key of a final job, by its mode: only a cancel ends a window early."""
    if mode != WINDOW or state == CANCELLED:
        tx.db.rows(FREE_KEY, (key, job_id))
    elif state == DONE:
        tx.db.rows(EXTEND_TO_WINDOW, (key, job_id))


def free_for_good(tx: SqliteTransaction, job_id: bytes, key: bytes) -> None:
    """Free the key of a job that is deleted."""
    tx.db.rows(FREE_KEY, (key, job_id))
