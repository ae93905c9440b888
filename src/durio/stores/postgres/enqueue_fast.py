"""Enqueue in one statement and one round trip, which covers nearly all enqueues.

If the queues have no guard, or room for all jobs, and if the keys are free, there is
nothing to decide. The statement checks this itself. If it is not so, the statement writes
nothing, or leaves out the jobs whose key is held; enqueue_locked.py stores those under locks,
and all calls that have jobs with ties or an expiry.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from durio.model.errors import StoreError
from durio.model.job import READY, SCHEDULED, NewJob
from durio.model.keys import WINDOW
from durio.ports.enqueue import Enqueued, Full
from durio.stores.postgres.connections import LockWait
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.drafts import Draft
from durio.stores.postgres.driver import KEY_WAIT, UNIQUE_VIOLATION, DriverError, Row
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import NO_WORKER

PLAIN = statement("enqueue_plain")
PLAIN_READY = statement("enqueue_ready")
PLAIN_SAME = statement("enqueue_same")
PLAIN_ONE = statement("enqueue_one")
BOUNDED = statement("enqueue_bounded")
KEYED = statement("enqueue_keyed")

# Stands for the row of a statement that was rolled back: nothing was written.
NOTHING_WRITTEN: Row = (True, 0.0, True, None, 0, None, False, False)


class JobColumns(NamedTuple):
    """The fields of NewJob as the arrays of a statement, without ties and expiry."""

    ids: list[bytes]
    lanes: list[str]
    ranks: list[int]
    tasks: list[str]
    payloads: list[bytes]
    run_ats: list[float | None]
    delays: list[float]
    opts: list[bytes | None]
    keys: list[Any]


async def enqueue_fast(
    context: PostgresContext,
    jobs: Sequence[NewJob],
    calls: Sequence[int],
    lock_wait: LockWait = LockWait.LONG,
) -> list[Enqueued | None] | None:
    """Return one result per job, None for a job left out; None if nothing was written."""
    if len(jobs) == 1 and is_simple(context, jobs[0]):
        return await enqueue_one(context, jobs[0], lock_wait)
    fields = zip(*jobs, strict=True)
    columns = JobColumns._make(map(list, islice(fields, len(JobColumns._fields))))
    if len(set(columns.ids)) < len(jobs):
        return None  # the same job is given twice
    if any(map(any, fields)):
        return None  # a job has ties, or expires: the other fields
    if not any(columns.keys):
        is_one = len(calls) == 1
        return await enqueue_plain(
            context, jobs, columns, lock_wait, is_one_call=is_one
        )
    if not keyed_jobs_are_single_calls(jobs, calls):
        return None
    return await enqueue_keyed(context, jobs, columns, lock_wait)


def is_simple(context: PostgresContext, job: NewJob) -> bool:
    """Whether the job has no key, ties or expiry, is due now, and enters a known, open queue."""
    lane = job.lane
    return (
        job.key is None
        and job.wait is None
        and not job.on_end
        and not job.gates
        and job.run_at is None
        and not job.delay_seconds
        and job.expires_at is None
        and lane in context.known_lanes
        and lane not in context.guarded_lanes
    )


async def enqueue_one(
    context: PostgresContext, job: NewJob, lock_wait: LockWait
) -> list[Enqueued | None] | None:
    """Enqueue the job of the most frequent call."""
    fields = (job.id, job.lane, job.rank, job.task, job.payload, job.opts)
    values = (*fields, context.connections.now)
    if (await write(context, lock_wait, PLAIN_ONE, values))[0]:
        return None
    lower_watermarks(context, (job,))
    context.wakeups.wake({job.lane: NO_WORKER}, ())
    return [Enqueued(job.id, True, READY)]


def keyed_jobs_are_single_calls(jobs: Sequence[NewJob], calls: Sequence[int]) -> bool:
    """Whether each job with a key is a call of its own, so that it can be left out alone."""
    start = 0
    for size in calls:
        if size > 1 and any(job.key is not None for job in jobs[start : start + size]):
            return False
        start += size
    return True


async def enqueue_plain(
    context: PostgresContext,
    jobs: Sequence[NewJob],
    columns: JobColumns,
    lock_wait: LockWait,
    *,
    is_one_call: bool,
) -> list[Enqueued | None] | None:
    """Enqueue jobs without keys: all of them or none."""
    if not context.guarded_lanes.isdisjoint(columns.lanes):
        return await enqueue_bounded(
            context, jobs, columns, lock_wait, is_one_call=is_one_call
        )
    run_ats, delays = columns.run_ats, columns.delays
    if any(delays) or run_ats.count(None) < len(run_ats):
        row = await send(context, lock_wait, PLAIN, jobs, columns[:7], columns.opts)
        return None if row[0] else [enqueued_result(job, row[1]) for job in jobs]
    # The common and quicker case: all jobs are due now and differ only in arguments.
    if is_uniform(columns):
        ids, lanes, ranks, tasks, payloads, *_ = columns
        values = (ids, lanes[0], ranks[0], tasks[0], payloads, columns.opts[0])
        row = await send(context, lock_wait, PLAIN_SAME, jobs, values)
    else:
        values = (*columns[:5], columns.opts)
        row = await send(context, lock_wait, PLAIN_READY, jobs, values)
    if row[0]:
        return None
    return [Enqueued(job_id, True, READY) for job_id in columns.ids]


def is_uniform(columns: JobColumns) -> bool:
    """Whether these jobs differ only in their arguments."""
    others = (columns.tasks, columns.lanes, columns.ranks, columns.opts)
    return all(map(is_constant, others))


def is_constant(column: list[Any]) -> bool:
    return column.count(column[0]) == len(column)


async def enqueue_bounded(
    context: PostgresContext,
    jobs: Sequence[NewJob],
    columns: JobColumns,
    lock_wait: LockWait,
    *,
    is_one_call: bool,
) -> list[Enqueued | None] | None:
    """Enqueue into queues that had a guard at this process's last enqueue.

    All jobs enter. If they do not fit and are one call, none does.
    """
    row = await send(context, lock_wait, BOUNDED, jobs, columns[:7], columns.opts)
    halts, now, is_guarded, *others = row
    if not is_guarded:
        context.guarded_lanes.difference_update(columns.lanes)
    if not halts:
        return [enqueued_result(job, now) for job in jobs]
    full = full_answer(others) if is_one_call else None
    if full is None:
        return None
    return [Enqueued(job_id, False, READY, full=full) for job_id in columns.ids]


def full_answer(row: Sequence[Any]) -> Full | None:
    """Return why there is no room, if that is the only reason; a stored job needs no room."""
    lane, depth, bound, is_closed, stands = row
    if lane is None or stands or not (is_closed or bound is not None):
        return None
    return Full(lane, depth, bound or 0, is_closed=is_closed)


async def enqueue_keyed(
    context: PostgresContext,
    jobs: Sequence[NewJob],
    columns: JobColumns,
    lock_wait: LockWait,
) -> list[Enqueued | None] | None:
    """Enqueue jobs some of which have keys; leave out jobs whose key is held."""
    waiting = [debounced(job) for job in jobs]
    columns = columns._replace(
        run_ats=[job.run_at for job in waiting],
        delays=[job.delay_seconds for job in waiting],
    )
    lock_timeout = None
    if lock_wait is LockWait.KEY:
        # The statement sets lock_timeout itself, because a transaction would take three
        # round trips.
        lock_wait, lock_timeout = LockWait.ONE_TURN, KEY_WAIT
    values = (*columns[:7], *key_columns(jobs))
    last = (columns.opts, lock_timeout)
    row = await send(context, lock_wait, KEYED, jobs, values, *last)
    if row[0]:
        return None
    _, now, held = row
    answers: list[Enqueued | None] = [enqueued_result(job, now) for job in waiting]
    for place in held:
        answers[place - 1] = None
    return answers


def debounced(job: NewJob) -> NewJob:
    """Return the job with the delay of its key, if the key debounces."""
    if job.key is None or job.key.delay_seconds <= 0:
        return job
    return job._replace(run_at=None, delay_seconds=job.key.delay_seconds)


def key_columns(jobs: Sequence[NewJob]) -> list[list[Any]]:
    rows = [
        (None, None, None, None)
        if key is None
        else (
            key.key,
            key.mode,
            key.digest,
            key.ttl_seconds if key.mode == WINDOW else None,
        )
        for key in (job.key for job in jobs)
    ]
    return [list(column) for column in zip(*rows, strict=True)]


async def send(
    context: PostgresContext,
    lock_wait: LockWait,
    sql: str,
    jobs: Sequence[NewJob],
    columns: Sequence[object],
    *last: object,
) -> Row:
    """Run the statement and wake workers; row[0] is true if nothing was written."""
    lanes = {job.lane for job in jobs}
    new_lanes = sorted(lanes - context.known_lanes)
    values = (*columns, list(lanes), new_lanes, context.connections.now, *last)
    row = await write(context, lock_wait, sql, values)
    if row[0]:
        return row
    context.known_lanes.update(new_lanes)
    lower_watermarks(context, jobs)
    context.wakeups.wake(dict.fromkeys(lanes, NO_WORKER), ())
    return row


async def write(
    context: PostgresContext, lock_wait: LockWait, sql: str, values: Sequence[object]
) -> Row:
    """Run the statement; row[0] is true if nothing was written."""
    try:
        (row,) = await context.connections.write_one(sql, *values, lock_wait=lock_wait)
    except StoreError as error:
        if is_duplicate_id(error):
            return NOTHING_WRITTEN  # the id is already stored; all was rolled back
        raise
    return row


def is_duplicate_id(error: StoreError) -> bool:
    cause = error.__cause__
    return isinstance(cause, DriverError) and cause.state == UNIQUE_VIOLATION


def is_lost(error: StoreError) -> bool:
    """Whether the connection was lost, or could not be opened; nothing was written."""
    cause = error.__cause__
    return isinstance(cause, DriverError) and cause.lost and not error.unknown


def enqueued_result(job: NewJob, now: float) -> Enqueued:
    """Return the result for a stored job, by the time of the statement."""
    due = job.run_at
    if due is None:
        due = now + max(job.delay_seconds, 0.0)
    return Enqueued(job.id, True, SCHEDULED if due > now else READY)


def lower_watermarks(context: PostgresContext, jobs: Iterable[NewJob | Draft]) -> None:
    """Lower watermarks for jobs with an old id, so that claims find them.

    Such jobs waited long for room, or were stored before.
    """
    floors = context.process.watermarks
    if floors.by_lane:
        for job in jobs:
            floors.lower(job.lane, job.rank, job.id)
