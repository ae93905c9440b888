"""Queues by hand: pause, resume, close, open, bound, and moving what waits.

Operators' hands: on jobs by id and by the thousand, on queues, and on workers.
"""

from collections.abc import Sequence

from durio.model.errors import StoreError
from durio.model.job import StoredJob
from durio.model.names import namespace_of
from durio.ports.browse import Query
from durio.ports.control import AS_IN_CODE, Acted, BulkStep, Counted, QueueChange, Verb
from durio.stores.postgres.audit import write_audit_line
from durio.stores.postgres.bounds import (
    change_depths,
    clear_soft_mark,
    lock_guards,
    recount,
    set_manual_bound,
)
from durio.stores.postgres.bulk import (
    PostgresBulkRequest,
    PostgresBulkResult,
    act_on_batch,
    bulk_mark_from_text,
    count_jobs,
    find_batch,
)
from durio.stores.postgres.context import (
    PostgresBulkPosition,
    PostgresBulkProgress,
    PostgresCapability,
)
from durio.stores.postgres.job_actions import (
    BULK_JOBS_MAX,
    act_on_ids,
    bounded_changes,
    restore_jobs,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

MAKE_LANES = statement("insert_queue")
LOCK_QUEUE = statement("lock_queue")
CHANGE_QUEUE = statement("change_queue")
FIND_WORKERS = statement("find_namespace_workers")
MOVE_READY = statement("move_ready_jobs")
MOVE_SCHEDULED = statement("move_scheduled_jobs")
COUNT_HELD = statement("count_locked_jobs")


async def change_queue(
    tx: PostgresTransaction, lane: str, change: QueueChange, by: str
) -> None:
    """The change, and who made it; what was so already is no change.

    A bound has to be settled after the commit: see bounds.py.
    """
    await tx.rows(MAKE_LANES, [lane])
    news = await actual_change(tx, lane, change)
    if (news.paused, news.closed) != (None, None):
        await tx.rows(CHANGE_QUEUE, lane, news.paused, news.closed)
    if change.maxsize is not None:
        await set_manual_bound(tx, lane, change.maxsize)
    if change.paused is not None:
        await wake_workers(tx, lane, paused=change.paused)
    for verb, target in news.in_words(lane):
        await write_audit_line(tx, namespace_of(lane), by, verb, target)


async def wake_workers(tx: PostgresTransaction, lane: str, *, paused: bool) -> None:
    """Every worker of the namespace, so that it asks at once."""
    for (worker,) in await tx.rows(FIND_WORKERS, namespace_of(lane)):
        tx.wake_worker(worker)
    if not paused:
        tx.wake(lane)


async def actual_change(
    tx: PostgresTransaction, lane: str, change: QueueChange
) -> QueueChange:
    """The part of a change that is not so yet; of two at once, the second sees the first."""
    paused, closed, bound = (await tx.rows(LOCK_QUEUE, lane))[0]
    return QueueChange(
        None if change.paused == paused else change.paused,
        None if change.closed == closed else change.closed,
        None
        if change.maxsize == (AS_IN_CODE if bound is None else bound)
        else change.maxsize,
    )


async def move_jobs(
    tx: PostgresTransaction,
    lane: str,
    to: str,
    limit: int,
    by: str,
    audit_line: int | None,
) -> tuple[BulkStep, int | None]:
    """Ready jobs first, in order, then those that are not due.

    Jobs that somebody else has hold of are passed by: they are being claimed, or ended; or
    it is a transaction that lasts. What is held at the end is told.
    """
    if lane == to:
        return BulkStep(0, more=False), audit_line
    guards = await lock_guards(tx, [lane, to])
    jobs = len(await tx.rows(MOVE_READY, lane, to, limit))
    if jobs:
        tx.wake(to)
    if jobs < limit:
        jobs += len(await tx.rows(MOVE_SCHEDULED, lane, to, limit - jobs))
    if jobs:
        await tx.rows(MAKE_LANES, [to])
        await change_depths(tx, bounded_changes(guards, {lane: -jobs, to: jobs}))
        if lane in guards and guards[lane].soft_limit:
            await clear_soft_mark(tx, lane)
        target = f"{lane} to {to}"
        namespace = namespace_of(lane)
        audit_line = await write_audit_line(
            tx, namespace, by, "move", target, jobs, add_to_line=audit_line
        )
    if jobs == limit:
        return BulkStep(jobs, more=True), audit_line
    held = await tx.value(COUNT_HELD, lane, BULK_JOBS_MAX)
    return BulkStep(jobs, more=False, held=held), audit_line


class PostgresControl(PostgresCapability):
    """Acting on jobs, queues and workers."""

    async def act(
        self, ids: Sequence[bytes], verb: Verb, *, by: str | None = None
    ) -> list[Acted]:
        """Do it, or leave a job as it is where its state does not allow it."""
        if not ids:
            return []
        return await act_on_ids(self.context, ids, verb, by)

    async def retry_edited(
        self, job_id: bytes, payload: bytes, *, by: str | None = None
    ) -> Acted:
        """`retry` of one job with other arguments, checked by the caller."""
        return (await act_on_ids(self.context, [job_id], "retry", by, payload))[0]

    async def count(self, query: Query) -> Counted:
        """Exactly how many jobs fit, and a mark for `act_on`."""
        return await self.context.connections.read_many(
            lambda reading: count_jobs(reading, query)
        )

    async def act_on(
        self, query: Query, verb: Verb, mark: str, limit: int, *, by: str
    ) -> BulkStep:
        """The verb for at most `limit` jobs that fit and are not beyond the mark."""
        context, key = self.context, (query, verb, mark, by)
        bulk = PostgresBulkRequest(query, verb, bulk_mark_from_text(mark), by)
        begun = context.bulk_actions.get(key)
        room = max(1, min(limit, BULK_JOBS_MAX))
        step = await context.connections.read_many(
            lambda reading: find_batch(
                reading, query, verb, bulk.mark, begun.position, room
            )
        )
        done = PostgresBulkResult(0, begun.audit_line)
        if step.found:
            done = await context.connections.write(
                lambda tx: act_on_batch(tx, bulk, step, begun.audit_line)
            )
        more = step.next_position is not None
        context.bulk_actions.put(
            key,
            PostgresBulkProgress(step.next_position, done.audit_line)
            if step.next_position
            else None,
        )
        return BulkStep(done.jobs, more, done.held)

    async def restore(self, jobs: Sequence[StoredJob], *, by: str) -> int:
        """Dead letters from elsewhere; ids that are stored stay as they are."""
        if not jobs:
            return 0
        return await self.context.connections.write(
            lambda tx: restore_jobs(tx, jobs, by)
        )

    async def change_queue(self, lane: str, change: QueueChange, *, by: str) -> None:
        """Pause, resume, close, open or bound a queue; whoever serves it is told."""
        context = self.context
        await context.connections.write(lambda tx: change_queue(tx, lane, change, by))
        if change.maxsize is not None:
            try:
                await recount(context, [lane])
            except StoreError as error:
                error.unknown = True  # the change itself was made
                raise

    async def move(self, lane: str, to: str, limit: int, *, by: str) -> BulkStep:
        """Waiting jobs go to another queue with priority, due time and fence."""
        context, key = self.context, ("move", lane, to, by)
        room = max(1, min(limit, BULK_JOBS_MAX))
        begun = context.bulk_actions.get(key)
        moved, line = await context.connections.write(
            lambda tx: move_jobs(tx, lane, to, room, by, begun.audit_line)
        )
        context.bulk_actions.put(
            key,
            PostgresBulkProgress(PostgresBulkPosition(), line) if moved.more else None,
        )
        return moved
