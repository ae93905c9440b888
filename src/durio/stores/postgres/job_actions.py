"""Apply operators' actions to jobs: cancel, retry, discard, run now, move, rename.

Several transactions may act on a job at the same time; the one that locks the job's row
first wins. For bulk actions, a `Judge` decides which of the locked jobs still match.

An action never waits for a locked row or key. A caller's transaction, or the task's own,
may hold the lock for a long time, and one locked job must not delay the others.

What an action does to jobs of each state is in apply_action.py. An action with effects is one
transaction: while a job is locked, all of it is undone and tried again.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from durio.model.effects import Effects
from durio.model.errors import StoreError
from durio.model.job import BLOCKED
from durio.ports.browse import Query
from durio.ports.control import (
    Acted,
    Action,
    AuditNote,
    CancelJobs,
    MoveJobs,
    RenameJobs,
    RetryJobs,
    RunJobsNow,
)
from durio.stores.browsing import BULK_JOBS_MAX
from durio.stores.postgres.admission import StaleRead
from durio.stores.postgres.apply_action import Changes, FoundJob, act_on_jobs
from durio.stores.postgres.audit import write_audit_note
from durio.stores.postgres.bounds import clear_soft_mark
from durio.stores.postgres.bulk import PostgresBulkMark, matching_jobs
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.effects import (
    lock_for_effects,
    undone_if_refused,
    write_effects,
)
from durio.stores.postgres.enqueue_locked import ChangedConcurrently
from durio.stores.postgres.filters import ID_BYTES
from durio.stores.postgres.logs import write_entries
from durio.stores.postgres.rename_jobs import jobs_not_renamed
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

READ_STATES = statement("read_states")

# Pause after a round that changed no job; it doubles each time.
PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 1.0


class ActionRequest(NamedTuple):
    """An action with its bulk query, if there is one, its audit note and its effects."""

    action: Action
    only: tuple[Query, PostgresBulkMark] | None
    note: AuditNote | None
    effects: Effects | None = None

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
                    partial(
                        act_once,
                        context=context,
                        ids=some,
                        request=request,
                        is_last=is_last,
                    )
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


async def act_with_effects(
    context: PostgresContext, ids: Sequence[bytes], request: ActionRequest
) -> list[Acted]:
    """Act on all jobs and write the effects in one transaction.

    At the time limit of a call, jobs that are still locked stay unchanged (`is_held`).
    """
    clock, pause = context.clock, PAUSE_SECONDS
    last = clock.monotonic() + context.location.call_seconds
    once = list(dict.fromkeys(ids))
    while True:
        is_last = request.only is not None or clock.monotonic() >= last
        try:
            acted, line = await context.connections.write(
                partial(
                    act_once,
                    context=context,
                    ids=once,
                    request=request,
                    is_last=is_last,
                )
            )
        except StaleRead:
            if clock.monotonic() >= last:
                raise ChangedConcurrently(
                    "an action with effects failed: other transactions changed the same "
                    "jobs, keys or records each time",
                    cure="Try again.",
                ) from None
            await clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        else:
            if request.note is not None:
                request.note.line = line
            return acted


async def act_once(
    tx: PostgresTransaction,
    context: PostgresContext,
    ids: Sequence[bytes],
    request: ActionRequest,
    *,
    is_last: bool,
) -> tuple[list[Acted], int | None]:
    """Act on each job in its current state; also return the number of the audit line.

    A job that another transaction has locked, or that `only` leaves out, has no result.
    With effects, StaleRead is raised for a locked job, except at the last try.
    """
    action, only, note, effects = request
    others: set[bytes] = set()

    async def judge(state: int, some: Collection[bytes]) -> set[bytes]:
        if only is None:
            return set(some)
        meant = await matching_jobs(tx, *only, state, some)
        others.update(job_id for job_id in some if job_id not in meant)
        return meant

    seen = await find_jobs(tx, ids)
    able = [job for job in seen.values() if request.is_meant(job)]
    if effects is not None:
        to = [action.lane] if isinstance(action, MoveJobs) else []
        await lock_for_effects(tx, [effects], (), [*to, *(job.lane for job in able)])
    changes = await act_on_jobs(tx, able, action, judge)
    undone = {job.id for job in able if job.id not in changes and job.id not in others}
    held = undone | await refused_jobs(tx, action, changes)
    if effects is not None:
        if undone and not is_last:
            raise StaleRead
        async with undone_if_refused(tx):
            await write_effects(tx, context, effects)
    await clear_mark_after(tx, request, changes)
    changes |= await ended_waits(tx, context, action, changes)
    if only is not None:
        asked = await still_in_state(tx, [seen[job_id] for job_id in undone])
        ids = [job_id for job_id in ids if job_id in changes or job_id in asked]
    acted = [
        acted_on(seen.get(job_id), job_id, changes, held)
        for job_id in ids
        if is_last or job_id not in undone
    ]
    lanes = {job.id: job.lane for job in seen.values()}
    if note is None:
        return acted, None
    return acted, await write_audit_note(tx, note, action, acted, lanes)


def acted_on(
    job: FoundJob | None, job_id: bytes, changes: Changes, held: Collection[bytes]
) -> Acted:
    state = None if job is None else job.state
    return Acted(job_id, state, changes.get(job_id, state), is_held=job_id in held)


async def clear_mark_after(
    tx: PostgresTransaction, request: ActionRequest, changes: Changes
) -> None:
    """Clear the mark of the soft bound of a queue in which many jobs were cancelled."""
    lane = None if request.only is None else request.only[0].lane
    if isinstance(request.action, CancelJobs) and lane and changes:
        await clear_soft_mark(tx, lane)


async def ended_waits(
    tx: PostgresTransaction, context: PostgresContext, action: Action, changes: Changes
) -> Changes:
    """Write the entries of this action; return the states of jobs that may have to wait."""
    entered = list(tx.gates.entering)
    ended = await write_entries(tx, context)
    if not isinstance(action, RetryJobs | RunJobsNow):
        return {}
    blocked = [job_id for job_id, state in changes.items() if state == BLOCKED]
    asked = entered + (blocked if ended.jobs else [])
    if not asked:
        return {}
    return {job.id: job.state for job in (await find_jobs(tx, asked)).values()}


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
