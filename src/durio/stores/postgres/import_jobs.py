"""Import jobs from another store: unchanged, each once, and none runs before all are here.

One document holds the progress. Every step locks it, checks it and writes it together with
the step's rows, so a repeated step finds that it was done. The queues are closed meanwhile:
no job runs here before all are imported, and no enqueue takes a key that is still to be
imported.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from durio.model.codec import json_text
from durio.model.job import JOB_COLUMNS
from durio.model.names import namespace_of, namespace_span
from durio.ports.move import (
    FIRST_KEYS,
    Counts,
    ImportProgress,
    ImportStage,
    JobDigest,
    JobRow,
    KeyRow,
    MovedRow,
    MovedTable,
    RowKey,
    StoreMetadata,
    move_ended,
    row_key,
)
from durio.stores.postgres.audit import storable
from durio.stores.postgres.bounds import (
    COUNTED,
    count_depths,
    lock_guards,
    recount,
)
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.death_counts import next_deaths
from durio.stores.postgres.import_gates import enter_imported, gates_log
from durio.stores.postgres.import_rows import (
    delete_rows,
    insert_rows,
    place_logs,
    place_some,
    read_rows,
)
from durio.stores.postgres.import_values import (
    clean_text,
    columns,
    imported_waits,
    job_values,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.store import PostgresStore
from durio.stores.postgres.transaction import PostgresTransaction, ReadTransaction
from durio.stores.postgres.waits import write_waits

LOCK_MARK = statement("lock_move_mark")
READ_MARK = statement("read_move_mark")
WRITE_MARK = statement("write_move_mark")
MAKE_MARK = statement("create_move_mark")
CLOSE_QUEUES = statement("import_queues")
SET_QUEUES = statement("set_imported_queues")
INSERT_JOBS = statement("import_jobs")
INSERT_KEYS = statement("import_keys")
INSERT_AUDIT = statement("import_audit")
ADD_DEATH_COUNTS = statement("upsert_death_counts")
READ_DIGESTS = statement("read_imported_jobs")
READ_KEYS = statement("read_imported_keys")
COUNT_JOBS = statement("count_all_jobs")
DELETE_JOBS = statement("delete_imported_jobs")
DELETE_KEYS = statement("delete_imported_keys")
FIND_WORKERS = statement("find_namespace_workers")
# Connections of the store are tuned for its hot statements; a count reads whole tables.
READ_ALL = "set local enable_seqscan = on"

KIND = "move"

_mark_decoder = msgspec.json.Decoder(dict[str, Any])


def import_jobs_into(store: Any) -> "PostgresImportJobs":
    if not isinstance(store, PostgresStore):
        raise TypeError(store)
    return PostgresImportJobs(store.context)


class PostgresImportJobs:
    """The store that receives jobs; see `ports.move.ImportJobs`."""

    def __init__(self, context: PostgresContext) -> None:
        self._context = context
        self.connections = context.connections

    # --- reading

    async def progress(self, move: str) -> ImportProgress | None:
        rows = await self.connections.read(READ_MARK, move)
        return decode_mark(rows[0][0]) if rows else None

    async def counts(self, namespaces: Sequence[str]) -> Counts:
        async def look(reading: ReadTransaction) -> Counts:
            await reading.run(READ_ALL)
            found: dict[str, dict[int, int]] = {}
            for namespace in namespaces:
                of_app = found.setdefault(namespace, {})
                span = namespace_span(namespace)
                for _, state, jobs in await reading.rows(COUNT_JOBS, *span):
                    of_app[state] = of_app.get(state, 0) + jobs
            return found

        return await self.connections.read_many(look)

    async def digests(self, ids: Sequence[bytes]) -> list[JobDigest]:
        rows = await self.connections.read(READ_DIGESTS, list(ids))
        return [JobDigest(*row) for row in rows]

    async def held_keys(self, keys: Sequence[bytes]) -> list[KeyRow]:
        rows = await self.connections.read(READ_KEYS, list(keys))
        return [(key, job, mode, mark, until) for key, job, mode, mark, until in rows]

    async def taken_rows(
        self, move: str, table: MovedTable, first: RowKey, last: RowKey
    ) -> list[MovedRow]:
        return await read_rows(self.connections, move, table, first, last)

    async def now(self) -> float:
        return await self.connections.read_many(lambda reading: reading.now())

    # --- storing what arrives

    async def begin(self, move: str, origin: str, metadata: StoreMetadata) -> None:
        """Close the queues of all jobs to import, and reserve numbers for their deaths."""

        async def work(tx: PostgresTransaction) -> None:
            mark = ImportProgress("arriving", 0, b"", 0)
            await tx.rows(MAKE_MARK, KIND, move, encode_mark(mark, origin))
            _, mark = await lock_mark(tx, move)
            if mark.stage != "arriving":
                return
            if metadata.deaths and not mark.seq:  # unused numbers do no harm
                first = await next_deaths(tx, metadata.deaths)
                await write_mark(tx, move, mark._replace(deaths=first - 1), origin)
            await self._close_queues(tx, metadata)

        await self.connections.write(work)
        await recount(self._context, [row.lane for row in metadata.queues])

    async def take_rows(
        self, move: str, table: MovedTable, after: RowKey, rows: Sequence[MovedRow]
    ) -> None:
        async def work(tx: PostgresTransaction, mark: ImportProgress) -> ImportProgress:
            check_stage(mark, "arriving")
            if mark.tables[table] != after:
                return mark
            await insert_rows(tx, move, table, rows)
            arrived = {**mark.tables, table: row_key(table, rows[-1])}
            return mark._replace(tables=arrived)

        await self._step(move, work)

    async def take_jobs(
        self, move: str, after: int, job_rows: Sequence[JobRow]
    ) -> None:
        async def work(tx: PostgresTransaction, mark: ImportProgress) -> ImportProgress:
            check_stage(mark, "arriving")
            if mark.seq != after:  # an earlier step stored them; its reply was lost
                return mark
            rows = [job_values(parcel, mark.deaths) for parcel in job_rows]
            await tx.rows(INSERT_JOBS, *columns(rows, len(JOB_COLUMNS)))
            await write_waits(tx, imported_waits(job_rows, gates_log(move)))
            return mark._replace(seq=job_rows[-1].seq)

        await self._step(move, work)

    async def take_keys(self, move: str, after: bytes, keys: Sequence[KeyRow]) -> None:
        async def work(tx: PostgresTransaction, mark: ImportProgress) -> ImportProgress:
            check_stage(mark, "arriving")
            if mark.key != after:
                return mark
            await tx.rows(INSERT_KEYS, *columns(keys, 5))
            return mark._replace(key=keys[-1][0])

        await self._step(move, work)

    async def place_rows(self, move: str, last_logs: Sequence[str]) -> int:
        placed = 0

        async def work(tx: PostgresTransaction, mark: ImportProgress) -> ImportProgress:
            nonlocal placed
            placed = 0
            if mark.stage in ("open", "shut"):
                return mark
            check_stage(mark, "arriving", "opening")
            placed = await place_some(tx, move, last_logs)
            return mark._replace(stage="opening")

        await self._step(move, work)
        return placed

    async def open(self, move: str, metadata: StoreMetadata) -> None:
        """Set the queues as they were, and wake the workers here.

        The logs that the leader reads are placed in this last step: it enqueues jobs, and
        the queues must be open then.
        """

        async def work(tx: PostgresTransaction, mark: ImportProgress) -> ImportProgress:
            if mark.stage == "open":
                return mark
            check_stage(mark, "opening", "shut")
            await set_queues(tx, metadata)
            if mark.stage == "opening":
                while await place_logs(tx, move):
                    pass
                await tx.rows(
                    ADD_DEATH_COUNTS, *columns(clean_text(metadata.tallies), 4)
                )
                await tx.rows(INSERT_AUDIT, *columns(clean_text(metadata.audit), 7))
                await enter_imported(tx, self._context, move)
            await self._wake_workers(tx, metadata)
            return mark._replace(stage="open")

        await self._step(move, work)

    # --- undoing a move

    async def abort(self, move: str, origin: str) -> bool:
        """Refuse all later steps: a late mover stores nothing and opens nothing."""

        async def work(tx: PostgresTransaction) -> bool:
            mark = ImportProgress("leaving", 0, b"", 0)
            if await tx.rows(MAKE_MARK, KIND, move, encode_mark(mark, origin)):
                return False
            _, mark = await lock_mark(tx, move)
            check_stage(mark, "arriving", "leaving")
            await write_mark(tx, move, mark._replace(stage="leaving"), origin)
            return True

        return await self.connections.write(work)

    async def remove(self, move: str, ids: Sequence[bytes]) -> None:
        log = gates_log(move)
        await self._take_back(move, lambda tx: tx.rows(DELETE_JOBS, list(ids), log))

    async def release(self, move: str, keys: Sequence[KeyRow]) -> None:
        pairs = columns([key[:2] for key in keys], 2)
        await self._take_back(move, lambda tx: tx.rows(DELETE_KEYS, *pairs))

    async def remove_rows(self, move: str) -> None:
        await self._take_back(move, lambda tx: delete_rows(tx, move))

    async def remove_metadata(self, move: str, metadata: StoreMetadata) -> None:
        """Open the queues as they were; keep the mark for late movers."""
        await self._take_back(move, lambda tx: set_queues(tx, metadata))

    # --- parts

    async def _step(
        self,
        move: str,
        work: Callable[
            [PostgresTransaction, ImportProgress], Awaitable[ImportProgress]
        ],
    ) -> None:
        """Do the work and write the progress in one transaction, so that a repeat finds it."""

        async def step(tx: PostgresTransaction) -> None:
            body, mark = await lock_mark(tx, move)
            after = await work(tx, mark)
            if after != mark:
                await write_mark(tx, move, after, body["from"])

        await self.connections.write(step)

    async def _take_back(
        self, move: str, work: Callable[[PostgresTransaction], Awaitable[object]]
    ) -> None:
        async def step(tx: PostgresTransaction) -> None:
            check_stage((await lock_mark(tx, move))[1], "leaving")
            await work(tx)

        await self.connections.write(step)

    async def _close_queues(
        self, tx: PostgresTransaction, metadata: StoreMetadata
    ) -> None:
        rows = [
            (row.lane, row.maxsize, row.is_default, row.manual_maxsize)
            for row in metadata.queues
        ]
        await tx.rows(CLOSE_QUEUES, *columns(rows, 4))
        await self._wake_workers(tx, metadata)

    async def _wake_workers(
        self, tx: PostgresTransaction, metadata: StoreMetadata
    ) -> None:
        """Make workers here read at once which queues are closed."""
        for namespace in {namespace_of(row.lane) for row in metadata.queues}:
            for (worker,) in await tx.rows(FIND_WORKERS, namespace):
                tx.wake_worker(worker)
        for row in metadata.queues:
            tx.wake(row.lane)


# --- marks


def decode_mark(body: str) -> ImportProgress:
    stored = _mark_decoder.decode(body)
    stored["key"] = bytes.fromhex(stored["key"])
    # A mark of an earlier version has no positions in tables.
    tables = stored.get("tables", FIRST_KEYS)
    stored["tables"] = {table: tuple(key) for table, key in tables.items()}
    return ImportProgress(*(stored[name] for name in ImportProgress._fields))


async def lock_mark(
    tx: PostgresTransaction, move: str
) -> tuple[dict[str, Any], ImportProgress]:
    """Lock the mark until the commit; raises if it is gone because the move was undone."""
    rows = await tx.rows(LOCK_MARK, move)
    if not rows:
        raise move_ended()
    return _mark_decoder.decode(rows[0][0]), decode_mark(rows[0][0])


def check_stage(mark: ImportProgress, *stages: ImportStage) -> None:
    """Raise if another mover has opened the queues or is undoing the move."""
    if mark.stage not in stages:
        raise move_ended()


async def write_mark(
    tx: PostgresTransaction, move: str, mark: ImportProgress, origin: str
) -> None:
    await tx.rows(WRITE_MARK, KIND, move, encode_mark(mark, origin))


def encode_mark(mark: ImportProgress, origin: str) -> str:
    """Encode the mark, with the origin of the jobs for people to read."""
    stored = {**mark._asdict(), "key": mark.key.hex(), "from": storable(origin)}
    return json_text(stored)


async def set_queues(tx: PostgresTransaction, metadata: StoreMetadata) -> None:
    """Pause and close queues as they were in the source, and count their depths."""
    rows = [(row.lane, row.paused, row.closed) for row in metadata.queues]
    lanes = [row.lane for row in metadata.queues]
    await lock_guards(tx, lanes)
    await count_depths(tx, lanes, COUNTED)
    await tx.rows(SET_QUEUES, *columns(rows, 3))
