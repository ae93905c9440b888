"""Apply operators' actions to jobs: cancel, kill, retry, discard, run now, move, rename.

A job's key is freed when the job ends. A retry takes the key again. If another job holds
the key, the retried job stays unchanged, because otherwise two jobs with one key would run.
A key's window that has ended is not opened again.
"""

from collections import Counter
from collections.abc import Sequence

from durio.model.effects import Effects
from durio.model.ids import format_ids
from durio.model.job import BLOCKED, CANCELLED, DEAD, DONE, READY, RUNNING, StoredJob
from durio.model.keys import WINDOW, payload_digest
from durio.model.names import namespace_of
from durio.model.outcome import KeepRule
from durio.model.ties import EndedJob, entry_body, load_ties
from durio.ports.browse import Query
from durio.ports.control import (
    Acted,
    Action,
    AuditEntry,
    AuditNote,
    CancelJobs,
    DiscardJobs,
    KillJobs,
    MoveJobs,
    RenameJobs,
    RetryJobs,
    RunJobsNow,
)
from durio.stores.job_rules import retention_of, without_expiry
from durio.stores.sqlite.audit import write_audit_line, write_audit_note
from durio.stores.sqlite.bounds import (
    add_to_depth,
    clear_soft_mark,
    subtract_from_depth,
)
from durio.stores.sqlite.bulk import SqliteBulkMark, still_matches
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.death_counts import count_death, next_death
from durio.stores.sqlite.effects import write_effects
from durio.stores.sqlite.exit import keeps_nothing
from durio.stores.sqlite.gates import enter_gates, leave_gates
from durio.stores.sqlite.keys import free_at_end, free_for_good
from durio.stores.sqlite.logs import append_ends, is_over, mark_quiet
from durio.stores.sqlite.rename_jobs import has_task, rename_job
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

FIND_STATE_AND_LANE = statement("find_state_and_lane")
CANCEL_WAITING = statement("cancel_waiting")
CANCEL_RUNNING = statement("cancel_running")
KILL_WAITING = statement("kill_waiting")
SET_OPTIONS = statement("set_options")
SET_RETENTION = statement("set_retention")
DELETE_JOB = statement("delete_job")
FIND_KEY_OF_FINAL_JOB = statement("find_key_of_final_job")
TAKE_KEY = statement("take_key")
RETRY_JOB = statement("retry_job")
DISCARD_JOB = statement("discard_job")
RUN_JOB_NOW = statement("run_job_now")
MOVE_JOB = statement("move_job")
MOVE_WAIT = statement("move_wait")
MOVE_GATED = statement("move_gated")
BLOCK_JOB = statement("block_job")
INSERT_WAIT = statement("insert_wait")
STOP_WAITING = statement("stop_waiting")
RESTORE_JOB = statement("restore_job")
INSERT_QUEUE = statement("insert_queue")


def act_on_ids(
    tx: SqliteTransaction,
    ids: Sequence[bytes],
    action: Action,
    only: tuple[Query, SqliteBulkMark] | None,
    note: AuditNote | None,
    effects: Effects | None = None,
) -> tuple[list[Acted], int | None]:
    """Act on each of these jobs; return the results in this order, and the audit line.

    EffectsRefused undoes everything if a condition of the effects does not hold.
    """
    if effects is not None:
        write_effects(tx, effects)
    acted: list[Acted] = []
    lanes: dict[bytes, str] = {}
    to = action.lane if isinstance(action, MoveJobs) else None
    for job_id in ids:
        rows = tx.db.rows(FIND_STATE_AND_LANE, (job_id,))
        state, lane = rows[0] if rows else (None, "")
        if only is not None and (
            lane == to or not is_meant(tx.db, only, action, job_id, state)
        ):
            continue
        after = None if state is None else act_on_job(tx, job_id, state, action)
        is_held = (
            isinstance(action, RenameJobs)
            and state in action.states
            and not has_task(tx, job_id, action.task)
        )
        acted.append(Acted(job_id, state, after, is_held))
        if rows:
            lanes[job_id] = lane
    changed = [one for one in acted if one.is_changed_by(action)]
    if to is not None and changed:
        count_move(tx, to, [(lanes[one.id], one.before) for one in changed])
    if isinstance(action, CancelJobs) and only is not None and only[0].lane and changed:
        clear_soft_mark(tx, only[0].lane)
    if note is None:
        return acted, None
    return acted, write_audit_note(tx, note, action, acted, lanes)


def is_meant(
    db: Database,
    only: tuple[Query, SqliteBulkMark],
    action: Action,
    job_id: bytes,
    state: int | None,
) -> bool:
    """Whether the action changes jobs in this state, and the bulk query still matches."""
    if state is None or state not in action.states:
        return False
    query, mark = only
    states = query.possible_states
    is_asked = states is None or state in states
    return is_asked and still_matches(db, query, mark, state, job_id)


def act_on_job(
    tx: SqliteTransaction, job_id: bytes, state: int, action: Action
) -> int | None:
    """Act on one job, depending on its state; return the state after."""
    match action:
        case CancelJobs() | KillJobs():
            return end_job(tx, job_id, state, action)
        case DiscardJobs():
            return discard_job(tx, job_id, state, action)
        case RunJobsNow():
            return run_job_now(tx, job_id, state)
        case MoveJobs():
            tx.db.rows(MOVE_JOB, (job_id, action.lane))
            tx.db.rows(MOVE_WAIT, (job_id, action.lane))
            tx.db.rows(MOVE_GATED, (job_id, action.lane))
            return state
        case RenameJobs():
            if state in action.states:
                rename_job(tx, job_id, action.task)
            return state
        case RetryJobs():
            return retry_job(tx, job_id, state, action.payload)


def end_job(
    tx: SqliteTransaction, job_id: bytes, state: int, action: CancelJobs | KillJobs
) -> int:
    if isinstance(action, KillJobs):
        return kill_job(tx, job_id, state, action)
    return cancel_job(tx, job_id, state, action)


def cancel_job(
    tx: SqliteTransaction, job_id: bytes, state: int, action: CancelJobs
) -> int:
    """Cancel a waiting job; mark a running one and wake its worker."""
    if state >= DONE:
        return state
    if state == RUNNING:
        return cancel_running(tx, job_id, action)
    retention, as_dead = tx.retention, action.is_kept_as_dead
    seconds = retention.dead_seconds if as_dead else retention.done_seconds
    values = (job_id, tx.now, tx.now + seconds, action.reason)
    key, opts, lane, seq, ties = tx.db.rows(CANCEL_WAITING, values)[0]
    subtract_from_depth(tx, lane)
    if state == BLOCKED:
        tx.db.rows(STOP_WAITING, (job_id,))
    if key is not None:
        free_for_good(tx, job_id, key)
    if ties is not None and not action.is_quiet:
        append_ends(tx, (EndedJob(job_id, CANCELLED, ties, None),))
    leave_gates(tx, ((seq, ties),))
    keep = retention_of(opts)
    if keep is not None:
        apply_retention(tx, job_id, keep)
    return CANCELLED


def cancel_running(tx: SqliteTransaction, job_id: bytes, action: CancelJobs) -> int:
    for (worker,) in tx.db.rows(CANCEL_RUNNING, (job_id,)):
        tx.woken_workers.add(worker)
    if action.is_quiet:
        mark_quiet(tx, job_id, action.reason)
    return RUNNING


def kill_job(tx: SqliteTransaction, job_id: bytes, state: int, action: KillJobs) -> int:
    """Make a waiting job dead."""
    if state not in action.states:
        return state
    gone_at = tx.now + tx.retention.dead_seconds
    values = (job_id, tx.now, gone_at, action.reason, action.error.decode())
    key, mode, lane, task, seq, ties = tx.db.rows(KILL_WAITING, values)[0]
    subtract_from_depth(tx, lane)
    if state == BLOCKED:
        tx.db.rows(STOP_WAITING, (job_id,))
    count_death(tx, job_id, lane, task)
    if ties is not None:
        body = entry_body(DEAD, None, action.error)
        append_ends(tx, (EndedJob(job_id, DEAD, ties, body),))
    leave_gates(tx, ((seq, ties),))
    if key is not None:
        free_at_end(tx, job_id, key, mode, DEAD)
    return DEAD


def apply_retention(tx: SqliteTransaction, job_id: bytes, keep: KeepRule) -> None:
    if keeps_nothing(keep):
        tx.db.rows(DELETE_JOB, (job_id,))
        return
    bucket = None if keep.count is None else keep.bucket
    tx.db.rows(SET_RETENTION, (job_id, tx.now + keep.seconds, bucket, keep.count))


def retry_job(
    tx: SqliteTransaction, job_id: bytes, state: int, payload: bytes | None
) -> int:
    """Restart a dead or cancelled job; leave others unchanged."""
    if state not in (DEAD, CANCELLED) or not retake_key(tx, job_id, payload):
        return state
    for lane, seq, ties, opts in tx.db.rows(RETRY_JOB, (job_id, payload, tx.now)):
        add_to_depth(tx, lane)
        unexpiring = None if opts is None else without_expiry(opts)
        if unexpiring is not None:
            tx.db.rows(SET_OPTIONS, (job_id, unexpiring))
        wait = None if ties is None else load_ties(ties).wait
        if wait is not None and not is_over(tx, *wait):
            tx.db.rows(BLOCK_JOB, (job_id,))
            tx.db.rows(INSERT_WAIT, (job_id, *wait, 0.0, lane))
            return BLOCKED
        if ties is not None and enter_gates(tx, (seq,)):
            return BLOCKED
        tx.wake(lane)
    return READY


def retake_key(tx: SqliteTransaction, job_id: bytes, payload: bytes | None) -> bool:
    """Take the job's key again, if it had one; return False if another job holds it."""
    for key, mode, stored, taken in tx.db.rows(FIND_KEY_OF_FINAL_JOB, (job_id, tx.now)):
        if taken:
            return False
        if mode != WINDOW:
            digest = payload_digest(stored if payload is None else payload)
            tx.db.rows(TAKE_KEY, (key, job_id, mode, digest, None))
    return True


def run_job_now(tx: SqliteTransaction, job_id: bytes, state: int) -> int:
    """Make a scheduled job ready; leave other jobs unchanged."""
    for lane, seq in tx.db.rows(RUN_JOB_NOW, (job_id, tx.now)):
        if seq is not None and enter_gates(tx, (seq,)):
            return BLOCKED
        tx.wake(lane)
        return READY
    return state


def discard_job(
    tx: SqliteTransaction, job_id: bytes, state: int, action: DiscardJobs
) -> int | None:
    """Delete a job that has ended and free the key that it still holds."""
    if state not in action.states:
        return state
    for (key,) in tx.db.rows(DISCARD_JOB, (job_id,)):
        if key is not None:
            free_for_good(tx, job_id, key)
    return None


def count_move(
    tx: SqliteTransaction, to: str, moved: Sequence[tuple[str, int | None]]
) -> None:
    """Change the depths of both queues, and wake the workers of the new one."""
    tx.db.rows(INSERT_QUEUE, (to,))
    tx.new_lanes.add(to)
    for lane, jobs in Counter(lane for lane, _ in moved).items():
        subtract_from_depth(tx, lane, jobs)
        clear_soft_mark(tx, lane)
    add_to_depth(tx, to, len(moved))
    if any(state == READY for _, state in moved):
        tx.wake(to)


def restore_jobs(
    tx: SqliteTransaction, jobs: Sequence[StoredJob], note: AuditNote
) -> int:
    """Insert dead letters, without keys; they are kept as long as new ones."""
    gone_at = tx.now + tx.retention.dead_seconds
    of_apps: dict[str, list[bytes]] = {}
    for lane in {record.lane for record in jobs}:
        tx.db.rows(INSERT_QUEUE, (lane,))
        tx.new_lanes.add(lane)
    for r in jobs:
        errors = None if r.errors is None else r.errors.decode("utf-8", "replace")
        counters = (r.retried, r.losses, r.lost, r.snoozed, r.claim_no)
        ended = tx.now if r.finished_at is None else r.finished_at
        times = (r.created_at, r.started_at, ended, gone_at)
        what = (r.id, r.lane, r.rank, r.task, r.payload)
        values = (*what, *counters, r.opts, errors, *times, r.reason, next_death(tx))
        if tx.db.rows(RESTORE_JOB, values):
            of_apps.setdefault(namespace_of(r.lane), []).append(r.id)
    for namespace, ids in of_apps.items():
        entry = AuditEntry(
            namespace, note.who, "restore", format_ids(ids), len(ids), note.details
        )
        write_audit_line(tx, entry)
    return sum(map(len, of_apps.values()))
