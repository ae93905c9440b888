"""Read records in SQLite, and write them in a transaction."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from durio.model.codec import json_text
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
        storable = [name for name in names if is_storable(kind, name)]
        if not storable:
            return []
        return await self.context.reader.read(
            lambda db: read_records(db, kind, storable, now)
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


def read_records(
    db: Database, kind: str, names: Sequence[str], now: float
) -> list[Record]:
    """Return the records that are there and have not expired, in this order."""
    rows = db.rows(READ_RECORD, (kind, json_text(list(names)), now))
    return [Record(*row) for row in rows]


def list_records(
    db: Database, kind: str, prefix: str, after: str, now: float, limit: int
) -> list[Record]:
    values = (kind, *names_from(prefix), after, now, max(0, limit))
    return [Record(*row) for row in db.rows(LIST_RECORDS, values)]


def check_versions(tx: SqliteTransaction, puts: Sequence[Put]) -> None:
    """Raise for the first put whose condition does not hold."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for put in puts:
        if put.if_version is not None:
            names[put.kind].append(put.name)
    standing = {
        (kind, record.name): record
        for kind, some in names.items()
        for record in read_records(tx.db, kind, some, tx.now)
    }
    for put in puts:
        check_version(put, standing.get(put[:2]))


def write_puts(tx: SqliteTransaction, puts: Sequence[Put]) -> list[int]:
    """Write and delete records, and wake workers that get a command.

    Return the versions, 0 for a deletion.
    """
    kept = [put for put in puts if put.body is not None]
    workers = map(commanded_worker, {put.kind for put in kept})
    tx.woken_workers.update(each for each in workers if each is not None)
    if len(kept) < len(puts):
        gone = [put[:2] for put in puts if put.body is None]
        tx.db.changed_by_many(DELETE_RECORD, gone)
    written = tx.db.rows_of_many(WRITE_RECORD, [row_of(tx, put) for put in kept])
    versions = (version for (version,) in written)
    return [0 if put.body is None else next(versions) for put in puts]


def row_of(tx: SqliteTransaction, put: Put) -> tuple[Any, ...]:
    """Return the values of `write_record`."""
    expires_at = None if put.ttl_seconds is None else tx.now + put.ttl_seconds
    return put.kind, put.name, put.body, put.due_at, expires_at


def prune_records(tx: SqliteTransaction, limit: int) -> None:
    tx.db.rows(PRUNE_RECORDS, (tx.now, limit))
