"""Operators' actions on jobs: cancel, retry, discard, move.

Others act at the same time: the transaction that locks a job's row acts on it. That is the
lane row of a waiting job, the run row of a running one, the kept row of one that has ended.
`judge` decides about locked jobs, for bulk actions.

No action waits for such a row, nor for a key: another transaction may keep it for long, a
caller's or that of the task itself, and one such job must not delay all others.

A key is freed at a job's end. A retry takes it again, unless another job has it now: then
the job stays as it is, because two jobs would run that must be one. A window that has ended
is not opened again.
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
from durio.model.outcome import Keep
from durio.ports.browse import Query
from durio.ports.control import (
    Acted,
    Action,
    AuditNote,
    CancelJobs,
    DiscardJobs,
    MoveJobs,
    RetryJobs,
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
DISCARD_JOBS = statement("discard_job")

# Between two rounds in which nothing could be done; then twice as long each time.
PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0


class FoundJob(NamedTuple):
    """Where a job is, as far as a look can tell, and what leads to its lane row."""

    id: bytes
    state: int
    lane: str
    rank: int | None
    run_at: float | None


# Which of these jobs, all in one state and locked, are meant.
Judge = Callable[[int, Collection[bytes]], Awaitable[set[bytes]]]
Changes = dict[bytes, int | None]  # the state after
Guards = Mapping[str, PostgresGuard]


class ActionRequest(NamedTuple):
    """What was asked for."""

    action: Action
    only: tuple[Query, PostgresBulkMark] | None
    note: AuditNote | None

    def is_meant(self, job: FoundJob) -> bool:
        """Whether the action can change the job, as far as can be said without a lock."""
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
    """Each of these jobs, in the order asked.

    Jobs that another transaction has locked, or moved on meanwhile, are looked for again in
    a transaction of their own: with locks of ours we would wait for one that waits for us.
    All are tried, then those that are left for as long as a call may last.
    """
    acted: dict[int, Acted] = {}
    left: list[tuple[int, bytes]] = list(enumerate(ids))
    clock, pause = context.clock, PAUSE_SECONDS
    last: float | None = None
    while left:  # a job that is named twice is met twice, one after the other
        places = {job_id: place for place, job_id in reversed(left)}
        is_over = last is not None and clock.monotonic() >= last
        is_last = is_over or request.only is not None
        for some in in_batches(sorted(places)):
            try:
                answers, line = await context.connections.write(
                    partial(act_once, ids=some, request=request, is_last=is_last)
                )
            except StoreError as error:
                error.unknown = error.unknown or bool(acted)  # some of it was done
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
    """Act on each job in its present state; also return the number of the audit line.

    A job is missing where another transaction locks it, or `only` leaves it out.
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
    if only is not None:
        asked = await still_in_state(tx, [seen[job_id] for job_id in undone])
        ids = [job_id for job_id in ids if job_id in changes or job_id in asked]
    acted: list[Acted] = []
    for job_id in ids:
        if is_last or job_id not in undone:
            state = seen[job_id].state if job_id in seen else None
            after = changes.get(job_id, state)
            acted.append(Acted(job_id, state, after, is_held=job_id in undone))
    changed = [one for one in acted if one.is_changed_by(action)]
    if isinstance(action, CancelJobs) and only is not None and only[0].lane and changed:
        await clear_soft_mark(tx, only[0].lane)
    if note is None:
        return acted, None
    lanes = {job.id: job.lane for job in seen.values()}
    return acted, await write_audit_note(tx, note, action, acted, lanes)


async def still_in_state(
    tx: PostgresTransaction, seen: Sequence[FoundJob]
) -> set[bytes]:
    """Ids still in the state that was read, so another transaction must lock them."""
    if not seen:
        return set()
    now = await find_jobs(tx, [job.id for job in seen])
    return {job.id for job in seen if job.id in now and now[job.id].state == job.state}


async def find_jobs(
    tx: PostgresTransaction, ids: Sequence[bytes]
) -> dict[bytes, FoundJob]:
    """Where these are; unknown ones are missing."""
    able = [job_id for job_id in ids if len(job_id) == ID_BYTES]
    return {row[0]: FoundJob(*row) for row in await tx.rows(READ_STATES, able)}


async def act_on_jobs(
    tx: PostgresTransaction, seen: Sequence[FoundJob], action: Action, judge: Judge
) -> Changes:
    """The action on jobs that were seen in a state that allows it.

    The states after it, by id. A job that is missing is locked by another transaction, was
    changed by one, or is left out by `only`.
    """
    if not seen:
        return {}
    ids = [job.id for job in seen]
    if isinstance(action, DiscardJobs):
        return await discard_jobs(tx, ids, judge)
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
    """Waiting jobs end; running ones are marked."""
    # Waiting ones first: an exchange that holds a lane row may wait for a run row, and
    # never the other way round. (We wait for neither, but others may for those we hold.)
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
    """Changes of depth in lanes that had a bound when they were locked.

    One that has got a bound since then is counted anew when we are over.
    """
    bounded = {lane for lane, guard in guards.items() if guard.limit is not None}
    return {lane: jobs for lane, jobs in changes.items() if lane in bounded}


async def lock_waiting(
    tx: PostgresTransaction, seen: Sequence[FoundJob], state: int, judge: Judge
) -> dict[FoundJob, int]:
    """Lock the lane rows of jobs that wait in this state; their claim numbers."""
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
    """What leads to lane rows, by id: lane and rank, or lane and due time."""
    ordered = sorted(places)
    return (
        [job.id for job in ordered],
        [job.lane for job in ordered],
        [job.rank if job.state == READY else job.run_at for job in ordered],
    )


async def end_jobs(
    tx: PostgresTransaction, guards: Guards, held: dict[bytes, int]
) -> list[bytes]:
    """Jobs without a lane are cancelled: each stays as long as it asked."""
    if not held:
        return []
    now, default = await tx.now(), Keep(tx.retention.done_seconds)
    ids, keeps, keys = list[bytes](), list[Keep](), list[tuple[bytes, bytes]]()
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
    """Running jobs are marked and their workers woken."""
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
    """Waiting jobs go to another lane; those that are locked stay."""
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


# --- retry, discard


async def retry_jobs(
    tx: PostgresTransaction,
    guards: Guards,
    ids: Sequence[bytes],
    payload: bytes | None,
    judge: Judge,
) -> Changes:
    """Dead and cancelled jobs begin anew, but for those whose key another one has."""
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
    """Delete the records of dead jobs, and free the keys that they still have."""
    rows = await tx.rows(LOCK_FINAL, sorted(ids))
    held = {row[0] for row in rows if row[1] == DEAD}
    if held:
        held &= await judge(DEAD, held)
    if held:
        await tx.rows(DISCARD_JOBS, sorted(held))
        keyed = [row for row in rows if row[0] in held and row[2] is not None]
        free_at_end(tx, [(row[2], row[0]) for row in keyed])
    return dict.fromkeys(held, None)
