"""Move jobs out of `running`, in one statement for every end except done.

Retry, give-back, rescue, orphan rescue and a worker's leave use it. The statement is
`model.transitions.way_out` in SQL. This module prepares its values, and applies the
consequences for keys, retention and waiting workers in the same transaction.
"""

from typing import NamedTuple

from durio.model.gate import FINAL
from durio.model.job import BLOCKED, CANCELLED, DEAD, READY
from durio.model.outcome import KeepRule, Outcome, OutcomeKind, Reason
from durio.model.ties import EndedJob, entry_body
from durio.stores.sqlite.bounds import add_to_depth
from durio.stores.sqlite.death_counts import count_death
from durio.stores.sqlite.gates import enter_gates, give_back, has_gates, leave_gates
from durio.stores.sqlite.keys import free_at_end, free_for_good
from durio.stores.sqlite.logs import append_ends
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import NO_WORKER, SqliteTransaction

LEAVE_RUNNING = statement("leave_running")
DELETE_JOB = statement("delete_job")


class SqliteExit(NamedTuple):
    state: int
    lane: str
    task: str


def leave_running(
    tx: SqliteTransaction,
    worker: int | None,
    outcome: Outcome,
    *,
    except_worker: int = NO_WORKER,
) -> SqliteExit | None:
    """Let one job leave `running`; None if the fence refused.

    `except_worker` needs no wakeup.
    """
    keep = outcome.keep or KeepRule(tx.retention.done_seconds)
    values = (
        outcome.id,
        outcome.claim_no,
        worker,
        outcome.kind,
        tx.now + outcome.delay_seconds if outcome.delay_seconds > 0 else None,
        None if outcome.error is None else outcome.error.decode(),
        Reason.WORKER_LOST if outcome.kind == OutcomeKind.LOST else outcome.reason,
        outcome.killed_process,
        tx.now,
        tx.now + keep.seconds,
        tx.now + tx.retention.dead_seconds,
        keep.bucket if keep.count is not None else None,
        keep.count,
        outcome.parks,
    )
    rows = tx.db.rows(LEAVE_RUNNING, values)
    if not rows:
        return None
    state, key, mode, lane, task, seq, ties = rows[0]
    if state <= READY:
        add_to_depth(tx, lane)  # without a check: the job was accepted before
        if ties is not None and has_gates(ties):
            state = go_back(tx, seq, state, again=outcome.again_from_gates)
    if state == READY:
        tx.wake(lane, except_worker=except_worker)
    elif state > READY:
        if state == DEAD:
            count_death(tx, outcome.id, lane, task)
        if ties is not None:
            body = entry_body(state, None, outcome.error)
            append_ends(tx, (EndedJob(outcome.id, state, ties, body),))
            leave_gates(tx, ((seq, ties),))
        gone = state == CANCELLED and keeps_nothing(outcome.keep)
        free_key_at_end(tx, outcome.id, state, key, mode, gone=gone)
    return SqliteExit(state, lane, task)


def go_back(tx: SqliteTransaction, seq: int, state: int, *, again: bool) -> int:
    """Let a job with gates wait again; return its state.

    It keeps its places in its queue, and else those that it holds until its end.
    """
    if state == READY and not again:
        return READY
    give_back(tx, seq, FINAL)
    return BLOCKED if state == READY and enter_gates(tx, (seq,)) else state


def free_key_at_end(
    tx: SqliteTransaction,
    job_id: bytes,
    state: int,
    key: bytes | None,
    mode: int | None,
    *,
    gone: bool,
) -> None:
    """Free the key of a dead or cancelled job; if `gone`, also delete the job."""
    if gone:
        tx.db.rows(DELETE_JOB, (job_id,))
    if key is None or mode is None:
        return
    if gone:
        free_for_good(tx, job_id, key)
    else:
        free_at_end(tx, job_id, key, mode, state)


def keeps_nothing(keep: KeepRule | None) -> bool:
    return keep is not None and keep.count is None and keep.seconds <= 0
