"""Export jobs to another store: drain this file, freeze it, record the target.

Triggers refuse forbidden changes (freeze_triggers.py). The settings of the queues are not
changed.
"""

from typing import Any

from durio.model.codec import json_text
from durio.model.errors import OperatingError
from durio.model.ids import id_text
from durio.model.quantities import counted
from durio.ports.lease import command_put
from durio.ports.move import (
    ActiveWorkers,
    Counts,
    ExportStage,
    JobRow,
    KeyRow,
    MoveMark,
    QueueSettingsRow,
    RecordRow,
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
from durio.stores.sqlite.records import write_put
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
COUNT_TIED_JOBS = statement("count_tied_jobs")
MEASURE_NEXT_JOBS = statement("measure_next_jobs")
EXPORT_JOBS = statement("export_jobs")
EXPORT_KEYS = statement("export_keys")
EXPORT_QUEUES = statement("export_queues")
EXPORT_RECORDS = statement("export_records")
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

    async def check(self) -> None:
        await self._context.reader.read(refuse_tied_jobs)

    # --- moving

    async def drain(self, mark: MoveMark, *, by: str) -> MoveMark:
        """Refuse new workers, and tell the registered ones to end.

        A repeat tells them again.
        """

        def work(tx: SqliteTransaction) -> MoveMark:
            standing = read_mark(tx.db)
            if standing is None:
                refuse_tied_jobs(tx.db)
                write_mark(tx, mark)
                refuse_changes(tx.db, "worker", "after insert", mark.to)
                refuse_changes(tx.db, "waits", "after insert", mark.to)  # new plans
                audit_every_app(tx, by, f"to {mark.to}: drain")
            for worker, namespace in tx.db.rows(FIND_REGISTERED_WORKERS):
                command = id_text(self._context.clock.new_id())
                write_put(tx, command_put(worker, command, "drain"))
                write_audit_line(tx, namespace, by, "drain", f"worker {worker}")
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
            last, size = after, 0
            for seq, length in db.rows(MEASURE_NEXT_JOBS, (after, limit)):
                size += length
                if last != after and size > BATCH_BYTES_MAX:
                    break
                last = seq
            return [JobRow(*row) for row in db.rows(EXPORT_JOBS, (after, last))]

        return await self._context.reader.read(look)

    async def keys(self, move: str, after: bytes, limit: int) -> list[KeyRow]:

        def look(db: OwnDatabase) -> list[KeyRow]:
            current_mark(db, move, "frozen", "moved")
            rows = db.rows(EXPORT_KEYS, (after, limit))
            return [
                (key, job, mode, mark, until) for key, job, mode, mark, until in rows
            ]

        return await self._context.reader.read(look)

    async def metadata(self) -> StoreMetadata:
        now = self._context.clock.now()
        return await self._context.reader.read(lambda db: read_metadata(db, now))

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


def refuse_tied_jobs(db: Database) -> None:
    """Refuse to move plans that have not ended well: their logs would stay behind.

    A failed or cancelled plan could not be retried. A plan that is done needs no logs.
    """
    tied = db.value(COUNT_TIED_JOBS)
    if tied:
        raise OperatingError(
            f"{counted(tied, 'job')} of plans cannot be moved: a move does not carry "
            "plans that are not done",
            cure="See `durio plans ls`. Let them end, and retry failed ones; then move.\n"
            "Jobs of plans that you give up: durio dead discard, and wait until cancelled "
            "ones are past their retention.",
        )


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
        write_audit_line(tx, namespace, by, "move away", target)


# --- reading


def count_active_workers(db: Database) -> ActiveWorkers:
    workers, running = db.rows(COUNT_ACTIVE_WORKERS)[0]
    return ActiveWorkers(workers, running)


def read_metadata(db: Database, now: float) -> StoreMetadata:
    """Return the small tables: queues, records, death counts, audit."""
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
        records=[RecordRow(*row) for row in db.rows(EXPORT_RECORDS, (now,))],
        tallies=[(lane, task, kind, n) for lane, task, kind, n in tallies if lane],
        deaths=deaths,
        audit=[
            (at, app, who, verb, target, jobs)
            for at, app, who, verb, target, jobs in db.rows(EXPORT_AUDIT)
        ],
    )
