"""Rows that arrive by a move: records, logs and entries, first under names of the move.

So neither a leader nor a worker of this store finds a part of a plan before all of it is
here. Placing gives the rows their own names, in transactions of a bounded size.
"""

from collections.abc import Sequence

from durio.ports.move import (
    LogEntryRow,
    LogHeadRow,
    MovedRow,
    MovedTable,
    RecordRow,
    RowKey,
)
from durio.ports.records import names_from
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.import_values import columns
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

INSERT: dict[MovedTable, str] = {
    "record": statement("import_records"),
    "log": statement("import_logs"),
    "entry": statement("import_entries"),
}
READ: dict[MovedTable, str] = {
    "record": statement("read_imported_records"),
    "log": statement("read_imported_logs"),
    "entry": statement("read_imported_entries"),
}
WIDTHS: dict[MovedTable, int] = {"record": 5, "log": 3, "entry": 8}  # stored columns
LOCK_PLACED_LOGS = statement("lock_placed_logs")
PLACE_LOGS = statement("place_logs")
PLACE_RECORDS = statement("place_records")
DELETE_ROWS = statement("delete_imported_rows")

# Of one transaction. A log is placed whole, however many entries it has.
PLACED_MAX, PLACED_ENTRIES_MAX = 1000, 10_000


def prefix_of(move: str) -> str:
    """Return what is put before the names of rows."""
    return f"moving:{move}:"


async def insert_rows(
    tx: PostgresTransaction, move: str, table: MovedTable, rows: Sequence[MovedRow]
) -> None:
    await tx.rows(INSERT[table], prefix_of(move), *columns(rows, WIDTHS[table]))


async def read_rows(
    connections: Connections, move: str, table: MovedTable, first: RowKey, last: RowKey
) -> list[MovedRow]:
    rows = await connections.read(READ[table], prefix_of(move), *first, *last)
    if table == "record":
        return [RecordRow(*row) for row in rows]
    if table == "log":
        return [LogHeadRow(*row) for row in rows]
    return [LogEntryRow(*row) for row in rows]


async def place_some(
    tx: PostgresTransaction, move: str, last_logs: Sequence[str]
) -> int:
    """Place logs, then records; return how many, 0 if only the last logs are left.

    A record may be due: the leader deletes a plan with all its logs.
    """
    count = await place_logs(tx, move, last_logs)
    if count:
        return count
    return await tx.value(PLACE_RECORDS, *names_from(prefix_of(move)), PLACED_MAX)


async def place_logs(
    tx: PostgresTransaction, move: str, except_logs: Sequence[str] = ()
) -> int:
    bounds = names_from(prefix_of(move))
    await tx.rows(LOCK_PLACED_LOGS, *bounds, PLACED_MAX)
    limits = PLACED_MAX, PLACED_ENTRIES_MAX
    return await tx.value(PLACE_LOGS, *bounds, list(except_logs), *limits)


async def delete_rows(tx: PostgresTransaction, move: str) -> None:
    await tx.rows(DELETE_ROWS, *names_from(prefix_of(move)))
