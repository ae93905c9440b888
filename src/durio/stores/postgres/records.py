"""Read records in PostgreSQL, and write them in a transaction.

Rows of records are locked before queues, lanes and keys, in the order of kind and name.
"""

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
from durio.stores.postgres.context import PostgresCapability
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

READ_RECORDS = statement("read_record")
LIST_RECORDS = statement("list_records")
FIND_DUE_RECORDS = statement("find_due_records")
LOCK_RECORDS = statement("lock_records")
WRITE_RECORDS = statement("write_records")
PRUNE_RECORDS = statement("prune_records")

RecordKey = tuple[str, str]  # kind, name


class PostgresRecords(PostgresCapability):
    async def records(self, kind: str, names: Sequence[str]) -> list[Record]:
        connections = self.context.connections
        asked = [name for name in names if is_storable(kind, name)]
        if not asked:
            return []
        rows = await connections.read(READ_RECORDS, kind, asked, connections.now)
        found = {row[1]: Record(*row) for row in rows}
        return [found[name] for name in names if name in found]

    async def list_records(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 200
    ) -> list[Record]:
        if not is_storable(kind, prefix, after):
            return []
        connections = self.context.connections
        values = (kind, *names_from(prefix), after, connections.now, max(0, limit))
        rows = await connections.read(LIST_RECORDS, *values)
        return [Record(*row) for row in rows]

    async def due_records(self, kind: str, *, limit: int) -> Due:
        check_due_limit(limit)
        if not is_storable(kind):
            return Due([], None)
        connections = self.context.connections
        rows = await connections.read(
            FIND_DUE_RECORDS, kind, connections.now, limit + 1
        )
        found = [Record(*row[:-1]) for row in rows if row[0] is not None]
        return due_of(found, rows[0][-1], limit)


async def list_records(tx: PostgresTransaction, kind: str, limit: int) -> list[Record]:
    """Return the first records of a kind, in the order of their names."""
    values = (kind, *names_from(""), "", tx.injected, limit)
    return [Record(*row) for row in await tx.rows(LIST_RECORDS, *values)]


async def lock_records(
    tx: PostgresTransaction, puts: Sequence[Put]
) -> tuple[dict[RecordKey, Record], set[RecordKey]]:
    """Lock the records of these puts; return those that exist, and the expired ones."""
    keys = sorted(put[:2] for put in puts)
    kinds, names = [kind for kind, _ in keys], [name for _, name in keys]
    standing: dict[RecordKey, Record] = {}
    expired: set[RecordKey] = set()
    for *fields, stands in await tx.rows(LOCK_RECORDS, kinds, names, tx.injected):
        record = Record(*fields)
        if stands:
            standing[record[:2]] = record
        else:
            expired.add(record[:2])
    return standing, expired


async def check_versions(
    tx: PostgresTransaction, puts: Sequence[Put], *, has_jobs: bool
) -> set[RecordKey]:
    """Raise for the first put whose condition fails; return the keys that must be new.

    Puts that only write, or only delete, without conditions and jobs need no call of their
    own: the statement that writes them locks their rows in the same order.
    """
    deletions = sum(put.body is None for put in puts)
    is_uniform = deletions in (0, len(puts)) and not has_jobs
    if not puts or (is_uniform and all(put.if_version is None for put in puts)):
        return set()
    standing, expired = await lock_records(tx, puts)
    for put in puts:
        check_version(put, standing.get(put[:2]))
    return {put[:2] for put in puts if put.if_version == 0 and put[:2] not in expired}


async def write_puts(
    tx: PostgresTransaction, puts: Sequence[Put], new: set[RecordKey] | None = None
) -> list[int] | None:
    """Write and delete records, and wake workers that get a command; return the versions.

    Returns None if another transaction has created one of the records that must be `new`.
    """
    if not puts:
        return []
    must_be_new = new or set()
    kinds, names, bodies, _, due_times, ttls = map(list, zip(*puts, strict=True))
    are_new = [put[:2] in must_be_new for put in puts]
    rows = await tx.rows(
        WRITE_RECORDS, kinds, names, bodies, due_times, ttls, are_new, tx.injected
    )
    versions: dict[RecordKey, int] = {(k, name): version for k, name, version in rows}
    written = [put for put in puts if put.body is not None]
    if len(versions) < len(written):
        return None
    for put in written:
        worker = commanded_worker(put.kind)
        if worker is not None:
            tx.wake_worker(worker)
    return [versions.get(put[:2], 0) for put in puts]


async def prune_records(tx: PostgresTransaction, limit: int) -> None:
    await tx.rows(PRUNE_RECORDS, await tx.now(), limit)
