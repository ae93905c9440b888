"""Read records in SQLite, and write them in a transaction."""

from collections.abc import Sequence

from durio.model.effects import Put
from durio.model.worker_commands import commanded_worker
from durio.ports.records import (
    Due,
    Record,
    check_due_limit,
    due_of,
    is_storable,
    names_from,
)
from durio.stores.commit_rules import check_version
from durio.stores.sqlite.context import SqliteCapability
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

READ_RECORD = statement("read_record")
LIST_RECORDS = statement("list_records")
FIND_DUE_RECORDS = statement("find_due_records")
WRITE_RECORD = statement("write_record")
DELETE_RECORD = statement("delete_record")
PRUNE_RECORDS = statement("prune_records")


class SqliteRecords(SqliteCapability):
    async def records(self, kind: str, names: Sequence[str]) -> list[Record]:
        now = self.context.clock.now()
        return await self.context.reader.read(
            lambda db: [
                record
                for name in names
                if is_storable(kind, name)
                and (record := read_record(db, kind, name, now)) is not None
            ]
        )

    async def list_records(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 200
    ) -> list[Record]:
        if not is_storable(kind, prefix, after):
            return []
        now = self.context.clock.now()
        return await self.context.reader.read(
            lambda db: list_records(db, kind, prefix, after, now, limit)
        )

    async def due_records(self, kind: str, *, limit: int) -> Due:
        check_due_limit(limit)
        if not is_storable(kind):
            return Due([], None)
        now = self.context.clock.now()
        rows = await self.context.reader.read(
            lambda db: db.rows(FIND_DUE_RECORDS, (kind, now, limit + 1))
        )
        return due_of([Record(*row) for row in rows], now, limit)


def read_record(db: Database, kind: str, name: str, now: float) -> Record | None:
    """Return one record; None if it is absent or expired."""
    rows = db.rows(READ_RECORD, (kind, name, now))
    return Record(*rows[0]) if rows else None


def list_records(
    db: Database, kind: str, prefix: str, after: str, now: float, limit: int
) -> list[Record]:
    values = (kind, *names_from(prefix), after, now, max(0, limit))
    return [Record(*row) for row in db.rows(LIST_RECORDS, values)]


def check_versions(tx: SqliteTransaction, puts: Sequence[Put]) -> None:
    """Raise for the first put whose condition does not hold."""
    for put in puts:
        if put.if_version is not None:
            check_version(put, read_record(tx.db, put.kind, put.name, tx.now))


def write_puts(tx: SqliteTransaction, puts: Sequence[Put]) -> list[int]:
    """Write and delete records, and wake workers that get a command; return the versions."""
    return [write_put(tx, put) for put in puts]


def write_put(tx: SqliteTransaction, put: Put) -> int:
    """Write or delete one record; return its version, 0 for a deletion."""
    if put.body is None:
        tx.db.rows(DELETE_RECORD, (put.kind, put.name))
        return 0
    worker = commanded_worker(put.kind)
    if worker is not None:
        tx.woken_workers.add(worker)
    expires_at = None if put.ttl_seconds is None else tx.now + put.ttl_seconds
    values = (put.kind, put.name, put.body, put.due_at, expires_at)
    return tx.db.value(WRITE_RECORD, values)


def prune_records(tx: SqliteTransaction, limit: int) -> None:
    tx.db.rows(PRUNE_RECORDS, (tx.now, limit))
