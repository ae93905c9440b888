"""Export jobs to another store: drain this file, freeze it, record the target.

Triggers refuse forbidden changes (freeze_triggers.py). The settings of the queues are not
changed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from durio.model.codec import json_text
from durio.model.ids import id_text
from durio.ports.control import AuditEntry
from durio.ports.lease import command_put
from durio.ports.move import (
    ActiveWorkers,
    Counts,
    ExportStage,
    JobRow,
    KeyRow,
    LogEntryRow,
    LogHeadRow,
    MovedRow,
    MovedTable,
    MoveMark,
    QueueSettingsRow,
    RecordRow,
    RowKey,
    StoreMetadata,
    move_ended,
)
from durio.stores.sqlite.audit import write_audit_line
from durio.stores.sqlite.context import SqliteContext
from durio.stores.sqlite.database import Database, OwnDatabase
from durio.stores.sqlite.freeze_triggers import (
    accept_changes,
    refuse_all_changes,
    refuse_changes,
)
from durio.stores.sqlite.records import write_puts
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.store import SqliteStore
from durio.stores.sqlite.translate import read_mark
from durio.stores.sqlite.write_session import SqliteTransaction

WRITE_MOVE_MARK = statement("write_move_mark")
DELETE_MOVE_MARK = statement("delete_move_mark")
FIND_REGISTERED_WORKERS = statement("find_registered_workers")
FIND_NAMESPACES = statement("find_namespaces")
COUNT_ACTIVE_WORKERS = statement("count_active_workers")
COUNT_ALL_JOBS = statement("count_all_jobs")
MEASURE_NEXT_JOBS = statement("measure_next_jobs")
EXPORT_JOBS = statement("export_jobs")
EXPORT_KEYS = statement("export_keys")
EXPORT_QUEUES = statement("export_queues")
MEASURE_NEXT_RECORDS = statement("measure_next_records")
EXPORT_RECORDS = statement("export_records")
EXPORT_LOGS = statement("export_logs")
MEASURE_NEXT_ENTRIES = statement("measure_next_entries")
EXPORT_ENTRIES = statement("export_entries")
EXPORT_PROTOCOLS = statement("export_protocols")
EXPORT_DEATH_COUNTS = statement("export_death_counts")
EXPORT_AUDIT = statement("export_audit")

BATCH_BYTES_MAX = 8 * 1024 * 1024


def export_jobs_from(store: Any) -> "SqliteExportJobs":
    if not isinstance(store, SqliteStore):
        raise TypeError(store)
    return SqliteExportJobs(store.context)


class SqliteExportJobs:
    """The store that jobs leave; see `ports.move.ExportJobs`."""

    def __init__(self, context: SqliteContext) -> None:
        self._context = context

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self._context.path)

    # --- reading

    async def mark(self) -> MoveMark | None:
        return await self._context.reader.read(read_mark)

    async def counts(self) -> Counts:
        """Return all jobs, by namespace and state; an App without jobs is included."""

        def look(db: OwnDatabase) -> Counts:
            found: dict[str, dict[int, int]]
            found = {name: {} for (name,) in db.rows(FIND_NAMESPACES)}
            for namespace, state, jobs in db.rows(COUNT_ALL_JOBS):
                found.setdefault(namespace, {})[state] = jobs
            return found

        return await self._context.reader.read(look)

    async def active_workers(self) -> ActiveWorkers:
        return await self._context.reader.read(count_active_workers)

    # --- moving

    async def drain(self, mark: MoveMark, *, by: str) -> MoveMark:
        """Refuse new workers, and tell the registered ones to end.

        A repeat tells them again.
        """

        def work(tx: SqliteTransaction) -> MoveMark:
            standing = read_mark(tx.db)
            if standing is None:
                write_mark(tx, mark)
                refuse_changes(tx.db, "worker", "after insert", mark.to)
                audit_every_app(tx, by, f"to {mark.to}: drain")
            for worker, namespace in tx.db.rows(FIND_REGISTERED_WORKERS):
                command = id_text(self._context.clock.new_id())
                write_puts(tx, [command_put(worker, command, "drain")])
                write_audit_line(
                    tx, AuditEntry(namespace, by, "drain", f"worker {worker}")
                )
            return standing or mark

        return await self._context.writer.write(work)

    async def freeze(self, move: str) -> ActiveWorkers | None:
        """Refuse all changes; return the workers and running jobs if any are left."""

        def work(tx: SqliteTransaction) -> ActiveWorkers | None:
            mark = current_mark(tx.db, move)
            active = count_active_workers(tx.db)
            if mark.stage != "draining":
                return None
            if active != (0, 0):
                return active
            refuse_all_changes(tx.db, mark.to)
            write_mark(tx, mark._replace(stage="frozen"))
            return None

        return await self._context.writer.write(work)

    async def jobs(self, move: str, after: int, limit: int) -> list[JobRow]:
        """Return the next jobs by arrival, limited in number and in bytes."""

        def look(db: OwnDatabase) -> list[JobRow]:
            current_mark(db, move, "frozen", "moved")
            measured = db.rows(MEASURE_NEXT_JOBS, (after, limit))
            span = (after, *last_of_batch(measured, (after,)))
            return [JobRow(*row) for row in db.rows(EXPORT_JOBS, span)]

        return await self._context.reader.read(look)

    async def keys(self, move: str, after: bytes, limit: int) -> list[KeyRow]:

        def look(db: OwnDatabase) -> list[KeyRow]:
            current_mark(db, move, "frozen", "moved")
            rows = db.rows(EXPORT_KEYS, (after, limit))
            return [
                (key, job, mode, mark, until) for key, job, mode, mark, until in rows
            ]

        return await self._context.reader.read(look)

    async def rows(
        self, move: str, table: MovedTable, after: RowKey, limit: int
    ) -> list[MovedRow]:
        """Return the next rows, limited in number and in bytes."""

        def look(db: OwnDatabase) -> list[MovedRow]:
            current_mark(db, move, "frozen", "moved")
            return READ_ROWS[table](db, after, limit)

        return await self._context.reader.read(look)

    async def metadata(self) -> StoreMetadata:
        return await self._context.reader.read(read_metadata)

    async def set_stage(self, move: str, stage: ExportStage) -> None:
        def work(tx: SqliteTransaction) -> None:
            mark = current_mark(tx.db, move)
            if mark.stage != stage:
                write_mark(tx, mark._replace(stage=stage))

        await self._context.writer.write(work)

    async def unfreeze(self, move: str, *, by: str) -> None:
        """Remove the mark and the triggers; waiting processes continue by themselves."""

        def work(tx: SqliteTransaction) -> None:
            mark = current_mark(tx.db, move)
            accept_changes(tx.db)
            tx.db.rows(DELETE_MOVE_MARK)
            audit_every_app(tx, by, f"to {mark.to}: back out")

        await self._context.writer.write(work)


# --- marks


def write_mark(tx: SqliteTransaction, mark: MoveMark) -> None:
    """Write the mark; there is one per file, because all its jobs go to one store."""
    tx.db.rows(WRITE_MOVE_MARK, (json_text(mark._asdict()),))


def current_mark(db: Database, move: str, *stages: ExportStage) -> MoveMark:
    """Return the mark of this move; raise if another process has ended the move."""
    mark = read_mark(db)
    if mark is None or mark.id != move or (stages and mark.stage not in stages):
        raise move_ended()
    return mark


def audit_every_app(tx: SqliteTransaction, by: str, target: str) -> None:
    for (namespace,) in tx.db.rows(FIND_NAMESPACES):
        write_audit_line(tx, AuditEntry(namespace, by, "move away", target))


# --- reading


def count_active_workers(db: Database) -> ActiveWorkers:
    workers, running = db.rows(COUNT_ACTIVE_WORKERS)[0]
    return ActiveWorkers(workers, running)


def last_of_batch(measured: Iterable[Sequence[Any]], after: RowKey) -> RowKey:
    """Return the key of the last row that fits; rows are measured as key and bytes."""
    last, size = after, 0
    for *key, length in measured:
        size += length
        if last != after and size > BATCH_BYTES_MAX:
            break
        last = tuple(key)
    return last


def read_records(db: Database, after: RowKey, limit: int) -> list[MovedRow]:
    last = last_of_batch(db.rows(MEASURE_NEXT_RECORDS, (*after, limit)), after)
    return [RecordRow(*row) for row in db.rows(EXPORT_RECORDS, (*after, *last))]


def read_log_heads(db: Database, after: RowKey, limit: int) -> list[MovedRow]:
    return [LogHeadRow(*row) for row in db.rows(EXPORT_LOGS, (*after, limit))]


def read_log_entries(db: Database, after: RowKey, limit: int) -> list[MovedRow]:
    last = last_of_batch(db.rows(MEASURE_NEXT_ENTRIES, (*after, limit)), after)
    return [LogEntryRow(*row) for row in db.rows(EXPORT_ENTRIES, (*after, *last))]


READ_ROWS: dict[MovedTable, Callable[[Database, RowKey, int], list[MovedRow]]] = {
    "record": read_records,
    "log": read_log_heads,
    "entry": read_log_entries,
}


def read_metadata(db: Database) -> StoreMetadata:
    """Return the small tables."""
    tallies = db.rows(EXPORT_DEATH_COUNTS)
    deaths = sum(dead for lane, _, _, dead in tallies if not lane)
    return StoreMetadata(
        queues=[
            QueueSettingsRow(
                name, bool(paused), bool(closed), most, bool(is_default), by_hand
            )
            for name, paused, closed, most, is_default, by_hand in db.rows(
                EXPORT_QUEUES
            )
        ],
        tallies=[(lane, task, kind, n) for lane, task, kind, n in tallies if lane],
        deaths=deaths,
        audit=[
            (at, app, who, verb, target, jobs, details)
            for at, app, who, verb, target, jobs, details in db.rows(EXPORT_AUDIT)
        ],
        protocols=[(app, required) for app, required in db.rows(EXPORT_PROTOCOLS)],
    )
