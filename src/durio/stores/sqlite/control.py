"""Act on jobs, queues and workers."""

from collections.abc import Sequence

from durio.model.effects import Effects
from durio.model.job import StoredJob
from durio.model.names import namespace_of
from durio.ports.browse import Query
from durio.ports.control import (
    Acted,
    Action,
    AuditNote,
    Counted,
    QueueChange,
)
from durio.stores.sqlite.audit import write_audit_line
from durio.stores.sqlite.bounds import forget_guards, set_manual_bound
from durio.stores.sqlite.bulk import bulk_mark_from_text, count_jobs
from durio.stores.sqlite.context import SqliteCapability
from durio.stores.sqlite.job_actions import act_on_ids, restore_jobs
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

CHANGE_QUEUE = statement("change_queue")
FIND_WORKERS_TO_WAKE = statement("find_workers_to_wake")
READ_LANES = statement("read_lanes")


def set_queue(
    tx: SqliteTransaction, lane: str, change: QueueChange, note: AuditNote
) -> None:
    """Apply the change and write it to the audit.

    Settings that already have the value are left out.
    """
    rows = tx.db.rows(READ_LANES, (lane, f"{lane}\0"))
    _, paused, closed, _, manual, _ = rows[0] if rows else (lane, 0, 0, None, None, 0)
    news = change.difference_to(paused=bool(paused), closed=bool(closed), manual=manual)
    tx.db.rows(CHANGE_QUEUE, (lane, change.paused, change.closed))
    tx.new_lanes.add(lane)
    forget_guards(tx)
    if change.maxsize is not None:
        set_manual_bound(tx, lane, change.maxsize)
    if change.paused is not None:
        wake_workers(tx, lane, paused=change.paused)
    for verb, target in news.in_words(lane):
        write_audit_line(tx, note.entry_of(lane, verb, target))


def wake_workers(tx: SqliteTransaction, lane: str, *, paused: bool) -> None:
    """Wake every worker of the namespace, so that it sends an exchange at once."""
    for worker, _ in tx.db.rows(FIND_WORKERS_TO_WAKE, (namespace_of(lane),)):
        tx.woken_workers.add(worker)
    if not paused:
        tx.wake(lane)


class SqliteControl(SqliteCapability):
    async def act(
        self,
        ids: Sequence[bytes],
        action: Action,
        *,
        only: tuple[Query, str] | None = None,
        note: AuditNote | None = None,
        effects: Effects | None = None,
    ) -> list[Acted]:
        counted = None if only is None else (only[0], bulk_mark_from_text(only[1]))
        if not ids and effects is None:
            return []
        acted, line = await self.context.writer.write(
            lambda tx: act_on_ids(tx, ids, action, counted, note, effects),
            rows=len(ids),
        )
        if note is not None:
            note.line = line
        return acted

    async def count(self, query: Query, *, most: int | None = None) -> Counted:
        now = self.context.clock.now()
        return await self.context.reader.read(
            lambda db: count_jobs(db, query, now, most)
        )

    async def restore(self, jobs: Sequence[StoredJob], note: AuditNote) -> int:
        if not jobs:
            return 0
        return await self.context.writer.write(
            lambda tx: restore_jobs(tx, jobs, note), rows=len(jobs)
        )

    async def set_queue(self, lane: str, change: QueueChange, note: AuditNote) -> None:
        await self.context.writer.write(lambda tx: set_queue(tx, lane, change, note))
