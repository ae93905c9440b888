"""The gate out of `running`, for everything but done: one statement, one way through.

Give-back, rescue, orphan rescue and leaving all come here. The statement is
`model.transitions.way_out` in SQL; here its values are put together, and what a way out
means for keys, retention and whoever waits for work is done in the same transaction.
"""

from typing import NamedTuple

from durio.model.job import CANCELLED, DEAD, READY
from durio.model.outcome import Keep, Kind, Outcome, Reason
from durio.stores.sqlite.bounds import note_entered
from durio.stores.sqlite.keys import free_at_end, free_for_good
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.tally import count_death
from durio.stores.sqlite.transaction import EVERYBODY, Transaction

PASS_GATE = statement("pass_gate")
DELETE_JOB = statement("delete_job")


class Passed(NamedTuple):
    """Where a job went."""

    state: int
    lane: str
    task: str


def pass_gate(
    tx: Transaction, worker: int | None, outcome: Outcome, *, tell: int = EVERYBODY
) -> Passed | None:
    """Let one job out; None: the fence refused. `tell` names who need not be rung."""
    keep = outcome.keep or Keep(tx.retention.done_seconds)
    values = (
        outcome.id,
        outcome.claim_no,
        worker,
        outcome.kind,
        tx.now + outcome.delay_seconds if outcome.delay_seconds > 0 else None,
        None if outcome.error is None else outcome.error.decode(),
        Reason.WORKER_LOST if outcome.kind == Kind.LOST else outcome.reason,
        outcome.guilty,
        tx.now,
        tx.now + keep.seconds,
        tx.now + tx.retention.dead_seconds,
        keep.bucket if keep.count is not None else None,
        keep.count,
        outcome.parks,
    )
    rows = tx.db.rows(PASS_GATE, values)
    if not rows:
        return None
    state, key, mode, lane, task = rows[0]
    if state <= READY:
        note_entered(tx, lane)  # whatever its bound: it was accepted once
    if state == READY:
        tx.ring(lane, but=tell)
    elif state > READY:
        if state == DEAD:
            count_death(tx, outcome.id, lane, task)
        gone = state == CANCELLED and traceless(outcome.keep)
        settle_end(tx, outcome.id, state, key, mode, gone=gone)
    return Passed(state, lane, task)


def settle_end(
    tx: Transaction,
    job_id: bytes,
    state: int,
    key: bytes | None,
    mode: int | None,
    *,
    gone: bool,
) -> None:
    """A job has become dead or cancelled: its key, and its record if none is wanted."""
    if gone:
        tx.db.rows(DELETE_JOB, (job_id,))
    if key is None or mode is None:
        return
    if gone:
        free_for_good(tx, job_id, key)
    else:
        free_at_end(tx, job_id, key, mode, state)


def traceless(keep: Keep | None) -> bool:
    """Whether a job shall leave nothing behind."""
    return keep is not None and keep.count is None and keep.seconds <= 0
