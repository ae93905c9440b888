"""Apply operators' actions to jobs: cancel, retry, discard, run now, move, rename.

Several transactions may act on a job at the same time; the one that locks the job's row
first wins. A waiting job's row is its lane row, a running job's is its run row, a finished
job's is its kept row. For bulk actions, a `Judge` decides which of the locked jobs still
match.

An action never waits for a locked row or key. A caller's transaction, or the task's own,
may hold the lock for a long time, and one locked job must not delay the others.

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
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import NamedTuple

from durio.model.errors import StoreError
from durio.model.job import CANCELLED, DEAD, READY, RUNNING, SCHEDULED
from durio.model.outcome import KeepRule
from durio.ports.browse import Query
from durio.ports.control import (
    Acted,
    Action,
    AuditNote,
    CancelJobs,
    DiscardJobs,
    MoveJobs,
    RenameJobs,
    RetryJobs,
    RunJobsNow,
)
from durio.stores.browsing import BULK_JOBS_MAX
from durio.stores.job_rules import retention_of
from durio.stores.postgres.audit import write_audit_note
from durio.stores.postgres.bounds import (
    PostgresGuard,
    change_depths,
    clear_soft_mark,
    lock_guards,
)
from durio.stores.postgres.bulk import PostgresBulkMark, matching_jobs
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.filters import ID_BYTES
from durio.stores.postgres.keys import free_at_end, retake_keys
from durio.stores.postgres.rename_jobs import jobs_not_renamed, rename_locked_jobs
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

MAKE_LANES = statement("insert_queue")
READ_STATES = statement("read_states")
LOCK_READY = statement("lock_ready_jobs")
LOCK_SCHEDULED = statement("lock_scheduled_jobs")
DELETE_READY = statement("delete_ready")
DELETE_SCHEDULED = statement("delete_scheduled")
LOCK_JOBS = statement("lock_jobs")
CANCEL_WAITING = statement("cancel_waiting")
LOCK_RUNNING = statement("lock_running_jobs")
CANCEL_RUNNING = statement("cancel_running")
MOVE_READY = statement("move_ready_jobs")
MOVE_SCHEDULED = statement("move_scheduled_jobs")
LOCK_FINAL = statement("lock_final_jobs")
RETRY_JOBS = statement("retry_job")
RUN_JOBS_NOW = statement("run_job_now")
DISCARD_JOBS = statement("discard_job")

# Pause after a round that changed no job; it doubles each time.
PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0


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
Guards = Mapping[str, PostgresGuard]


class ActionRequest(NamedTuple):
    """An action with its bulk query, if there is one, and its audit note."""

    action: Action
    only: tuple[Query, PostgresBulkMark] | None
    note: AuditNote | None

    def is_meant(self, job: FoundJob) -> bool:
        """Tell, without a lock, whether the action can change this job."""
        if job.state not in self.action.states:
            return False
        if self.only is None:
            return True
        states = self.only[0].possible_states
        is_there = isinstance(self.action, MoveJobs) and job.lane == self.action.lane
        return not is_there and (states is None or job.state in states)


# --- jobs by id


async def act_on_ids(
    context: PostgresContext, ids: Sequence[bytes], request: ActionRequest
) -> list[Acted]:
    """Act on each of these jobs; return the results in the order of `ids`.

    A job that another transaction has locked or moved is tried again in a new transaction.
    Keeping our locks while we wait could deadlock with a transaction that waits for them.
    After all jobs were tried once, the remaining ones are retried until the time limit of a
    call has passed.
    """
    acted: dict[int, Acted] = {}
    left: list[tuple[int, bytes]] = list(enumerate(ids))
    clock, pause = context.clock, PAUSE_SECONDS
    last: float | None = None
    while left:  # an id given twice is acted on twice, in sequence
        places = {job_id: place for place, job_id in reversed(left)}
        is_over = last is not None and clock.monotonic() >= last
        is_last = is_over or request.only is not None
        for some in in_batches(sorted(places)):
            try:
                answers, line = await context.connections.write(
                    partial(act_once, ids=some, request=request, is_last=is_last)
                )
            except StoreError as error:
                error.unknown = error.unknown or bool(acted)  # part is committed
                raise
            acted |= {places[one.id]: one for one in answers}
            if request.note is not None:
                request.note.line = line
        if request.only is not None:
            break
        tried, left = len(left), [each for each in left if each[0] not in acted]
        now = clock.monotonic()
        last = now + context.location.call_seconds if last is None else last
        if len(left) < tried:
            pause = PAUSE_SECONDS
        elif now < last:
            await clock.sleep(min(pause, last - now))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
    return [acted[place] for place in sorted(acted)]


def in_batches(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Split ids into batches, each for one transaction."""
    for first in range(0, len(ids), BULK_JOBS_MAX):
        yield ids[first : first + BULK_JOBS_MAX]


async def act_once(
    tx: PostgresTransaction,
    ids: Sequence[bytes],
    request: ActionRequest,
    *,
    is_last: bool,
) -> tuple[list[Acted], int | None]:
    """Act on each job in its current state; also return the number of the audit line.

    A job that another transaction has locked, or that `only` leaves out, has no result.
    """
    action, only, note = request
    others: set[bytes] = set()

    async def judge(state: int, some: Collection[bytes]) -> set[bytes]:
        if only is None:
            return set(some)
        meant = await matching_jobs(tx, *only, state, some)
        others.update(job_id for job_id in some if job_id not in meant)
        return meant

    seen = await find_jobs(tx, ids)
    able = [job for job in seen.values() if request.is_meant(job)]
    changes = await act_on_jobs(tx, able, action, judge)
    undone = {job.id for job in able if job.id not in changes and job.id not in others}
    held = undone | await refused_jobs(tx, action, changes)
    if only is not None:
        asked = await still_in_state(tx, [seen[job_id] for job_id in undone])
        ids = [job_id for job_id in ids if job_id in changes or job_id in asked]
    acted: list[Acted] = []
    for job_id in ids:
        if is_last or job_id not in undone:
            state = seen[job_id].state if job_id in seen else None
            after = changes.get(job_id, state)
            acted.append(Acted(job_id, state, after, is_held=job_id in held))
    changed = [one for one in acted if one.is_changed_by(action)]
    if isinstance(action, CancelJobs) and only is not None and only[0].lane and changed:
        await clear_soft_mark(tx, only[0].lane)
    if note is None:
        return acted, None
    lanes = {job.id: job.lane for job in seen.values()}
    return acted, await write_audit_note(tx, note, action, acted, lanes)


async def refused_jobs(
    tx: PostgresTransaction, action: Action, changes: Changes
) -> set[bytes]:
    """Return jobs that a rename has not changed and would not change again."""
    if not isinstance(action, RenameJobs):
        return set()
    return await jobs_not_renamed(tx, changes, action.task)


async def still_in_state(
    tx: PostgresTransaction, seen: Sequence[FoundJob]
) -> set[bytes]:
    """Return the ids still in the state that was read: other transactions lock them."""
    if not seen:
        return set()
    now = await find_jobs(tx, [job.id for job in seen])
    return {job.id for job in seen if job.id in now and now[job.id].state == job.state}


async def find_jobs(
    tx: PostgresTransaction, ids: Sequence[bytes]
) -> dict[bytes, FoundJob]:
    """Return the state and lane row of each job; unknown ids are left out."""
    able = [job_id for job_id in ids if len(job_id) == ID_BYTES]
    return {row[0]: FoundJob(*row) for row in await tx.rows(READ_STATES, able)}


async def act_without_guards(
    tx: PostgresTransaction,
    seen: Sequence[FoundJob],
    action: DiscardJobs | RunJobsNow | RenameJobs,
    judge: Judge,
) -> Changes:
    """Apply an action that adds no job to a bounded queue."""
    match action:
        case DiscardJobs():
            return await discard_jobs(tx, [job.id for job in seen], judge)
        case RunJobsNow():
            return await run_jobs_now(tx, seen, judge)
        case RenameJobs(task):
            return await rename_jobs(tx, seen, task, judge)


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
            return await cancel_jobs(tx, guards, seen, judge)


# --- cancel


async def cancel_jobs(
    tx: PostgresTransaction, guards: Guards, seen: Sequence[FoundJob], judge: Judge
) -> Changes:
    """Cancel waiting jobs; mark running ones so that their workers stop them."""
    # Lock waiting jobs first. An exchange that holds a lane row may wait for a run row,
    # never the reverse. We wait for neither, but other transactions may wait for the rows
    # that we lock.
    held: dict[bytes, int] = {}
    for state, leave in ((SCHEDULED, DELETE_SCHEDULED), (READY, DELETE_READY)):
        locked = await lock_waiting(tx, seen, state, judge)
        held |= {job.id: claim_no for job, claim_no in locked.items()}
        if locked:
            await tx.rows(leave, *lane_columns(locked))
    changes: Changes = dict.fromkeys(await end_jobs(tx, guards, held), CANCELLED)
    running = [place.id for place in seen if place.state == RUNNING]
    return changes | await cancel_running(tx, running, judge)


def bounded_changes(guards: Guards, changes: Mapping[str, int]) -> dict[str, int]:
    """Return the changes of depth in lanes that had a bound when they were locked.

    A lane that got its bound later is recounted after this transaction.
    """
    bounded = {lane for lane, guard in guards.items() if guard.limit is not None}
    return {lane: jobs for lane, jobs in changes.items() if lane in bounded}


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


async def end_jobs(
    tx: PostgresTransaction, guards: Guards, held: dict[bytes, int]
) -> list[bytes]:
    """Cancel jobs whose lane rows are deleted; keep each for its own retention."""
    if not held:
        return []
    now, default = await tx.now(), KeepRule(tx.retention.done_seconds)
    ids, keeps, keys = list[bytes](), list[KeepRule](), list[tuple[bytes, bytes]]()
    left: Counter[str] = Counter()
    for job_id, lane, opts, key in await tx.rows(LOCK_JOBS, sorted(held)):
        ids.append(job_id)
        keeps.append(retention_of(opts) or default)
        left[lane] -= 1
        if key is not None:
            keys.append((key, job_id))
    await tx.rows(
        CANCEL_WAITING,
        ids,
        [held[job_id] for job_id in ids],
        [now + keep.seconds for keep in keeps],
        [None if keep.count is None else keep.bucket for keep in keeps],
        [keep.count for keep in keeps],
        [keep.count is not None or keep.seconds > 0 for keep in keeps],
        now,
    )
    await change_depths(tx, bounded_changes(guards, left))
    free_at_end(tx, keys)
    return ids


async def cancel_running(
    tx: PostgresTransaction, ids: Sequence[bytes], judge: Judge
) -> Changes:
    """Mark running jobs as cancelled and wake their workers."""
    if not ids:
        return {}
    held: dict[bytes, int] = dict(await tx.rows(LOCK_RUNNING, sorted(ids)))
    if held:
        meant = await judge(RUNNING, held)
        held = {job_id: held[job_id] for job_id in held if job_id in meant}
    if held:
        await tx.rows(CANCEL_RUNNING, list(held))
    for worker in held.values():
        tx.wake_worker(worker)
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
    for state, move in ((SCHEDULED, MOVE_SCHEDULED), (READY, MOVE_READY)):
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
        await tx.rows(RUN_JOBS_NOW, *lane_columns(locked), await tx.now())
    for job in locked:
        tx.wake(job.lane)
    return dict.fromkeys((job.id for job in locked), READY)


async def rename_jobs(
    tx: PostgresTransaction, seen: Sequence[FoundJob], task: str, judge: Judge
) -> Changes:
    """Give waiting and dead jobs another task, except those that are locked."""
    changes: Changes = {}
    for state in (SCHEDULED, READY):
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
    """Restart dead and cancelled jobs, except those whose key another job holds."""
    rows = await tx.rows(LOCK_FINAL, sorted(ids))
    held: Changes = {row[0]: row[1] for row in rows}
    meant: set[bytes] = set()
    for state in RetryJobs.states:
        some = [job_id for job_id in held if held[job_id] == state]
        meant |= await judge(state, some) if some else set()
    held = {job_id: held[job_id] for job_id in held if job_id in meant}
    keyed = [row[2:] for row in rows if row[0] in held and row[2] is not None]
    taken = await retake_keys(tx, keyed, payload)
    held = {job_id: held[job_id] for job_id in held if job_id not in taken.held}
    able = [job_id for job_id in held if job_id not in taken.refused]
    if able:
        entered: Counter[str] = Counter()
        for (lane,) in await tx.rows(RETRY_JOBS, able, payload, await tx.now()):
            entered[lane] += 1
            tx.wake(lane)
        await change_depths(tx, bounded_changes(guards, entered))
    return held | dict.fromkeys(able, READY)


async def discard_jobs(
    tx: PostgresTransaction, ids: Sequence[bytes], judge: Judge
) -> Changes:
    """Delete the records of dead jobs, and free the keys that they still hold."""
    rows = await tx.rows(LOCK_FINAL, sorted(ids))
    held = {row[0] for row in rows if row[1] == DEAD}
    if held:
        held &= await judge(DEAD, held)
    if held:
        await tx.rows(DISCARD_JOBS, sorted(held))
        keyed = [row for row in rows if row[0] in held and row[2] is not None]
        free_at_end(tx, [(row[2], row[0]) for row in keyed])
    return dict.fromkeys(held, None)
