"""Apply an action to jobs whose state allows it: cancel, kill, move, run now, rename, retry, discard.

A waiting job's row is its lane row, a running job's is its run row, a finished job's is its
kept row. Rows that another transaction has locked are skipped.

A job's key is freed when the job ends. A retry takes the key again. If another job holds
the key, the retried job stays unchanged, because otherwise two jobs with one key would run.
A key's window that has ended is not opened again.
"""

from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Sequence,
)
from typing import NamedTuple

from durio.model.job import BLOCKED, CANCELLED, DEAD, READY, RUNNING, SCHEDULED
from durio.ports.control import (
    Action,
    CancelJobs,
    DiscardJobs,
    KillJobs,
    MoveJobs,
    RenameJobs,
    RetryJobs,
    RunJobsNow,
)
from durio.stores.job_rules import without_expiry
from durio.stores.postgres.bounds import (
    change_depths,
    clear_soft_mark,
    lock_guards,
)
from durio.stores.postgres.end_waiting import (
    Guards,
    bounded_changes,
    cancel_waiting,
    kill_waiting,
)
from durio.stores.postgres.gates import jobs_with_gates
from durio.stores.postgres.keys import free_at_end, retake_keys
from durio.stores.postgres.logs import mark_quiet
from durio.stores.postgres.rename_jobs import rename_locked_jobs
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction
from durio.stores.postgres.waits import insert_waits, waits_of

MAKE_LANES = statement("insert_queue")
LOCK_READY = statement("lock_ready_jobs")
LOCK_SCHEDULED = statement("lock_scheduled_jobs")
DELETE_READY = statement("delete_ready")
DELETE_SCHEDULED = statement("delete_scheduled")
LOCK_JOBS = statement("lock_jobs")
LOCK_RUNNING = statement("lock_running_jobs")
CANCEL_RUNNING = statement("cancel_running")
MOVE_READY = statement("move_ready_jobs")
MOVE_SCHEDULED = statement("move_scheduled_jobs")
LOCK_FINAL = statement("lock_final_jobs")
RETRY_JOBS = statement("retry_job")
SET_OPTIONS = statement("set_options")
RUN_JOBS_NOW = statement("run_job_now")
DISCARD_JOBS = statement("discard_job")


class FoundJob(NamedTuple):
    """A job's state, and the values that identify its lane row, as read without a lock."""

    id: bytes
    state: int
    lane: str
    rank: int | None
    run_at: float | None


# Returns those of the locked jobs, all in one state, that match the bulk query.
Judge = Callable[[int, Collection[bytes]], Awaitable[set[bytes]]]
Changes = dict[bytes, int | None]  # the state after the action


async def act_on_jobs(
    tx: PostgresTransaction, seen: Sequence[FoundJob], action: Action, judge: Judge
) -> Changes:
    """Apply the action to jobs whose state, when read, allowed it.

    Returns the new states by id. A missing job was locked or changed by another
    transaction, or `only` leaves it out.
    """
    if not seen:
        return {}
    if isinstance(action, DiscardJobs | RunJobsNow | RenameJobs):
        return await act_without_guards(tx, seen, action, judge)
    ids = [job.id for job in seen]
    to = [action.lane] if isinstance(action, MoveJobs) else []
    guards = await lock_guards(tx, {*to, *(job.lane for job in seen)})
    match action:
        case RetryJobs():
            return await retry_jobs(tx, guards, ids, action.payload, judge)
        case MoveJobs():
            return await move_jobs(tx, guards, seen, action.lane, judge)
        case CancelJobs():
            return await cancel_jobs(tx, guards, seen, action, judge)
        case KillJobs():
            return await kill_jobs(tx, guards, seen, action, judge)


async def act_without_guards(
    tx: PostgresTransaction,
    seen: Sequence[FoundJob],
    action: DiscardJobs | RunJobsNow | RenameJobs,
    judge: Judge,
) -> Changes:
    """Apply an action that adds no job to a bounded queue."""
    match action:
        case DiscardJobs():
            return await discard_jobs(tx, [job.id for job in seen], action, judge)
        case RunJobsNow():
            return await run_jobs_now(tx, seen, judge)
        case RenameJobs(task):
            return await rename_jobs(tx, seen, task, judge)


# --- cancel


async def cancel_jobs(
    tx: PostgresTransaction,
    guards: Guards,
    seen: Sequence[FoundJob],
    action: CancelJobs,
    judge: Judge,
) -> Changes:
    """Cancel waiting jobs; mark running ones so that their workers stop them."""
    # Lock waiting jobs first. An exchange that holds a lane row may wait for a run row,
    # never the reverse. We wait for neither, but other transactions may wait for the rows
    # that we lock.
    held = await leave_lanes(tx, seen, judge)
    blocked = {job.id for job in seen if job.state == BLOCKED}
    ended = await cancel_waiting(tx, guards, held, blocked, action)
    changes: Changes = dict.fromkeys(ended, CANCELLED)
    running = [place.id for place in seen if place.state == RUNNING]
    return changes | await cancel_running(tx, running, action, judge)


async def kill_jobs(
    tx: PostgresTransaction,
    guards: Guards,
    seen: Sequence[FoundJob],
    action: KillJobs,
    judge: Judge,
) -> Changes:
    """Make waiting jobs dead, except those that are locked."""
    held = await leave_lanes(tx, seen, judge)
    blocked = {job.id for job in seen if job.state == BLOCKED}
    ended = await kill_waiting(tx, guards, held, blocked, action)
    return dict.fromkeys(ended, DEAD)


async def leave_lanes(
    tx: PostgresTransaction, seen: Sequence[FoundJob], judge: Judge
) -> dict[bytes, int]:
    """Lock waiting jobs and delete their lane rows; return their claim numbers."""
    held: dict[bytes, int] = {}
    for state in KillJobs.states:
        leave = DELETE_READY if state == READY else DELETE_SCHEDULED
        locked = await lock_waiting(tx, seen, state, judge)
        held |= {job.id: claim_no for job, claim_no in locked.items()}
        if locked:
            await tx.rows(leave, *lane_columns(locked))
    return held


async def lock_waiting(
    tx: PostgresTransaction, seen: Sequence[FoundJob], state: int, judge: Judge
) -> dict[FoundJob, int]:
    """Lock the lane rows of jobs that wait in this state; return their claim numbers."""
    places = [job for job in seen if job.state == state]
    if not places:
        return {}
    lock = LOCK_READY if state == READY else LOCK_SCHEDULED
    held: dict[bytes, int] = dict(await tx.rows(lock, *lane_columns(places)))
    meant = await judge(state, held) if held else ()
    return {job: held[job.id] for job in places if job.id in meant}


def lane_columns(
    places: Iterable[FoundJob],
) -> tuple[list[bytes], list[str], list[float | None]]:
    """Return the columns that identify lane rows: id, lane, rank or due time; by id."""
    ordered = sorted(places)
    return (
        [job.id for job in ordered],
        [job.lane for job in ordered],
        [job.rank if job.state == READY else job.run_at for job in ordered],
    )


async def cancel_running(
    tx: PostgresTransaction, ids: Sequence[bytes], action: CancelJobs, judge: Judge
) -> Changes:
    """Mark running jobs as cancelled and wake their workers."""
    if not ids:
        return {}
    held: dict[bytes, int] = dict(await tx.rows(LOCK_RUNNING, sorted(ids)))
    if held:
        meant = await judge(RUNNING, held)
        held = {job_id: held[job_id] for job_id in held if job_id in meant}
    if held:
        for (worker,) in await tx.rows(CANCEL_RUNNING, list(held)):
            tx.wake_worker(worker)
        if action.is_quiet:
            rows = await tx.rows(LOCK_JOBS, sorted(held))
            await mark_quiet(tx, {row[0]: row[4] for row in rows}, action.reason)
    return dict.fromkeys(held, RUNNING)


# --- move


async def move_jobs(
    tx: PostgresTransaction,
    guards: Guards,
    seen: Sequence[FoundJob],
    to: str,
    judge: Judge,
) -> Changes:
    """Move waiting jobs to another lane, except those that another transaction has locked."""
    changes: Changes = {}
    depths: Counter[str] = Counter()
    for state in MoveJobs.states:
        move = MOVE_READY if state == READY else MOVE_SCHEDULED
        locked = await lock_waiting(tx, seen, state, judge)
        if locked:
            await tx.rows(move, *lane_columns(locked), to)
            depths.subtract(job.lane for job in locked)
            changes |= dict.fromkeys((job.id for job in locked), state)
    if changes:
        left = [lane for lane in depths if lane in guards and guards[lane].soft_limit]
        depths[to] += len(changes)
        await tx.rows(MAKE_LANES, [to])
        await change_depths(tx, bounded_changes(guards, depths))
        await clear_soft_mark(tx, *left)
        if READY in changes.values():
            tx.wake(to)
    return changes


# --- run now, rename


async def run_jobs_now(
    tx: PostgresTransaction, seen: Sequence[FoundJob], judge: Judge
) -> Changes:
    """Make scheduled jobs ready, except those that are locked."""
    locked = await lock_waiting(tx, seen, SCHEDULED, judge)
    if locked:
        rows = await tx.rows(RUN_JOBS_NOW, *lane_columns(locked), await tx.now())
        tx.gates.entering += [job_id for (job_id,) in rows]
    for job in locked:
        tx.wake(job.lane)
    return dict.fromkeys((job.id for job in locked), READY)


async def rename_jobs(
    tx: PostgresTransaction, seen: Sequence[FoundJob], task: str, judge: Judge
) -> Changes:
    """Give waiting and dead jobs another task, except those that are locked."""
    changes: Changes = {}
    for state in (SCHEDULED, BLOCKED, READY):
        waiting = [job.id for job in await lock_waiting(tx, seen, state, judge)]
        done = await rename_locked_jobs(tx, waiting, task, are_final=False)
        changes |= dict.fromkeys(done, state)
    dead: set[bytes] = set()
    if final := sorted(job.id for job in seen if job.state == DEAD):
        rows = await tx.rows(LOCK_FINAL, final)
        dead = {row[0] for row in rows if row[1] == DEAD}
    if dead:
        dead = await judge(DEAD, dead)
    done = await rename_locked_jobs(tx, sorted(dead), task, are_final=True)
    return changes | dict.fromkeys(done, DEAD)


# --- retry, discard


async def retry_jobs(
    tx: PostgresTransaction,
    guards: Guards,
    ids: Sequence[bytes],
    payload: bytes | None,
    judge: Judge,
) -> Changes:
    """Restart dead and cancelled jobs, except those whose key another job holds.

    A job that waits for a log is blocked; `write_entries` lets it go if the log is long
    enough.
    """
    rows = await tx.rows(LOCK_FINAL, sorted(ids))
    held: Changes = {row[0]: row[1] for row in rows}
    meant: set[bytes] = set()
    for state in RetryJobs.states:
        some = [job_id for job_id in held if held[job_id] == state]
        meant |= await judge(state, some) if some else set()
    held = {job_id: held[job_id] for job_id in held if job_id in meant}
    keyed = [row[3:] for row in rows if row[0] in held and row[3] is not None]
    taken = await retake_keys(tx, keyed, payload)
    held = {job_id: held[job_id] for job_id in held if job_id not in taken.held}
    able = [job_id for job_id in held if job_id not in taken.refused]
    if not able:
        return held
    ties = {row[0]: row[2] for row in rows if row[0] in able}
    waits = waits_of(ties.items())
    blocked = [wait.id for wait in waits]
    entering = jobs_with_gates(ties.items(), except_ids=blocked)
    tx.gates.entering += entering
    blocked += entering
    entered: Counter[str] = Counter()
    unexpiring: dict[bytes, bytes] = {}
    for lane, job_id, opts in await tx.rows(
        RETRY_JOBS, able, payload, await tx.now(), blocked
    ):
        entered[lane] += 1
        tx.wake(lane)
        kept = None if opts is None else without_expiry(opts)
        if kept is not None:
            unexpiring[job_id] = kept
    if unexpiring:
        ids = sorted(unexpiring)
        await tx.rows(SET_OPTIONS, ids, [unexpiring[job_id] for job_id in ids])
    await insert_waits(tx, waits)
    await change_depths(tx, bounded_changes(guards, entered))
    return held | dict.fromkeys(able, READY) | dict.fromkeys(blocked, BLOCKED)


async def discard_jobs(
    tx: PostgresTransaction, ids: Sequence[bytes], action: DiscardJobs, judge: Judge
) -> Changes:
    """Delete the records of jobs that have ended, and free the keys that they hold."""
    rows = await tx.rows(LOCK_FINAL, sorted(ids))
    held: set[bytes] = set()
    for state in action.states:
        some = [row[0] for row in rows if row[1] == state]
        held |= await judge(state, some) if some else set()
    if held:
        await tx.rows(DISCARD_JOBS, sorted(held))
        keyed = [row for row in rows if row[0] in held and row[3] is not None]
        free_at_end(tx, [(row[3], row[0]) for row in keyed])
    return dict.fromkeys(held, None)
