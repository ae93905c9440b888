"""Queues by hand: pause, resume, close, open, bound, and moving what waits.

Operators' hands: on jobs by id and by the thousand, on queues, and on workers.
"""

from collections.abc import Sequence

from durio.model.job import StoredJob
from durio.model.names import namespace_of
from durio.ports.browse import Query
from durio.ports.control import AS_IN_CODE, Acted, BulkStep, Counted, QueueChange, Verb
from durio.stores.sqlite.audit import write_audit_line
from durio.stores.sqlite.bounds import (
    add_to_depth,
    clear_soft_mark,
    forget_guards,
    set_manual_bound,
    subtract_from_depth,
)
from durio.stores.sqlite.context import SqliteCapability
from durio.stores.sqlite.job_actions import (
    BULK_JOBS_MAX,
    SqliteBulkPosition,
    SqliteBulkProgress,
    act_on_batch,
    act_on_ids,
    bulk_mark_from_text,
    count_jobs,
    find_batch,
    restore_jobs,
)
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

CHANGE_QUEUE = statement("change_queue")
FIND_WORKERS_TO_WAKE = statement("find_workers_to_wake")
READ_LANES = statement("read_lanes")
INSERT_QUEUE = statement("insert_queue")
MOVE_READY_JOBS = statement("move_ready_jobs")
MOVE_SCHEDULED_JOBS = statement("move_scheduled_jobs")


def change_queue(
    tx: SqliteTransaction, lane: str, change: QueueChange, by: str
) -> None:
    """The change, and who made it; what was so already is no change."""
    news = actual_change(tx, lane, change)
    tx.db.rows(CHANGE_QUEUE, (lane, change.paused, change.closed))
    tx.new_lanes.add(lane)
    forget_guards(tx)
    if change.maxsize is not None:
        set_manual_bound(tx, lane, change.maxsize)
    if change.paused is not None:
        wake_workers(tx, lane, paused=change.paused)
    for verb, target in news.in_words(lane):
        write_audit_line(tx, namespace_of(lane), by, verb, target)


def wake_workers(tx: SqliteTransaction, lane: str, *, paused: bool) -> None:
    """Every worker of the namespace, so that it asks at once."""
    for worker, _ in tx.db.rows(FIND_WORKERS_TO_WAKE, (namespace_of(lane),)):
        tx.woken_workers.add(worker)
    if not paused:
        tx.wake(lane)


def actual_change(tx: SqliteTransaction, lane: str, change: QueueChange) -> QueueChange:
    """The part of a change that is not so yet."""
    rows = tx.db.rows(READ_LANES, (lane, f"{lane}\0"))
    _, paused, closed, _, bound, _ = rows[0] if rows else (lane, 0, 0, None, None, 0)
    return QueueChange(
        None if change.paused == bool(paused) else change.paused,
        None if change.closed == bool(closed) else change.closed,
        None
        if change.maxsize == (AS_IN_CODE if bound is None else bound)
        else change.maxsize,
    )


def move_jobs(
    tx: SqliteTransaction,
    lane: str,
    to: str,
    limit: int,
    by: str,
    audit_line: int | None,
) -> tuple[BulkStep, int | None]:
    """Ready jobs first, in order, then those that are not due."""
    if lane == to:
        return BulkStep(0, more=False), audit_line
    jobs = len(tx.db.rows(MOVE_READY_JOBS, (lane, to, limit)))
    if jobs:
        tx.wake(to)
    if jobs < limit:
        jobs += len(tx.db.rows(MOVE_SCHEDULED_JOBS, (lane, to, limit - jobs)))
    if jobs:
        tx.db.rows(INSERT_QUEUE, (to,))
        tx.new_lanes.add(to)
        subtract_from_depth(tx, lane, jobs)
        clear_soft_mark(tx, lane)
        add_to_depth(tx, to, jobs)
        target = f"{lane} to {to}"
        namespace = namespace_of(lane)
        audit_line = write_audit_line(
            tx, namespace, by, "move", target, jobs, add_to_line=audit_line
        )
    return BulkStep(jobs, more=jobs == limit), audit_line


class SqliteControl(SqliteCapability):
    """Acting on jobs, queues and workers."""

    async def act(
        self, ids: Sequence[bytes], verb: Verb, *, by: str | None = None
    ) -> list[Acted]:
        """Do it, or leave a job as it is where its state does not allow it."""
        if not ids:
            return []
        return await self.context.writer.write(
            lambda tx: act_on_ids(tx, ids, verb, by), rows=len(ids)
        )

    async def retry_edited(
        self, job_id: bytes, payload: bytes, *, by: str | None = None
    ) -> Acted:
        """`retry` of one job with other arguments, checked by the caller."""
        return await self.context.writer.write(
            lambda tx: act_on_ids(tx, [job_id], "retry", by, payload)[0]
        )

    async def count(self, query: Query) -> Counted:
        """Exactly how many jobs fit, and a mark for `act_on`."""
        now = self.context.clock.now()
        return await self.context.reader.read(lambda db: count_jobs(db, query, now))

    async def act_on(
        self, query: Query, verb: Verb, mark: str, limit: int, *, by: str
    ) -> BulkStep:
        """The verb for at most `limit` jobs that fit and are not beyond the mark."""
        context, key = self.context, (query, verb, mark, by)
        begun = context.bulk_actions.get(key)
        room = max(1, min(limit, BULK_JOBS_MAX))
        step = await context.reader.read(
            lambda db: find_batch(
                db, query, verb, bulk_mark_from_text(mark), begun.position, room
            )
        )
        jobs, line = 0, begun.audit_line
        if step.found:
            jobs, line = await context.writer.write(
                lambda tx: act_on_batch(
                    tx, query, verb, bulk_mark_from_text(mark), step.found, by, line
                ),
                rows=len(step.found),
            )
        context.bulk_actions.put(
            key,
            None
            if step.next_position is None
            else SqliteBulkProgress(step.next_position, line),
        )
        return BulkStep(jobs, more=step.next_position is not None)

    async def restore(self, jobs: Sequence[StoredJob], *, by: str) -> int:
        """Dead letters from elsewhere; ids that are stored stay as they are."""
        if not jobs:
            return 0
        return await self.context.writer.write(
            lambda tx: restore_jobs(tx, jobs, by), rows=len(jobs)
        )

    async def change_queue(self, lane: str, change: QueueChange, *, by: str) -> None:
        """Pause, resume, close, open or bound a queue; whoever serves it is told."""
        await self.context.writer.write(lambda tx: change_queue(tx, lane, change, by))

    async def move(self, lane: str, to: str, limit: int, *, by: str) -> BulkStep:
        """Waiting jobs go to another queue with priority, due time and fence."""
        context, key = self.context, ("move", lane, to, by)
        room = max(1, min(limit, BULK_JOBS_MAX))
        line = context.bulk_actions.get(key).audit_line
        moved, line = await context.writer.write(
            lambda tx: move_jobs(tx, lane, to, room, by, line), rows=room
        )
        context.bulk_actions.put(
            key, SqliteBulkProgress(SqliteBulkPosition(), line) if moved.more else None
        )
        return moved
