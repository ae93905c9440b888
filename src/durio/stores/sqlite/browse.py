"""Read the store: jobs by id or page, lanes, counts, workers, tasks.

Pages are sorted by arrival (`seq`), newest first; those of a range of ids by id. Each begins
where the last one ended, so a page costs the same at any depth. A page reads a limited
number of rows, so it may be short or empty and still have a cursor. Counts read index entries only, one per waiting or dead
job: about 0.1 s per million.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from durio.model.codec import json_text
from durio.model.job import BLOCKED, DEAD, DONE, READY, RUNNING, SCHEDULED, StoredJob
from durio.model.names import namespace_span
from durio.ports.browse import (
    AuditLine,
    DeathCount,
    GatedJob,
    GateRow,
    LaneRow,
    Page,
    Query,
    WorkerRow,
)
from durio.ports.records import is_storable
from durio.stores.browsing import (
    EVERY_LANE,
    PAGE_MAX,
    gated_jobs,
    invalid_cursor,
    lane_rows,
    worker_row,
)
from durio.stores.sqlite.bulk import find_counted
from durio.stores.sqlite.context import SqliteCapability
from durio.stores.sqlite.database import Database, Row
from durio.stores.sqlite.filters import state_conditions
from durio.stores.sqlite.gate_upkeep import read_gates
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.translate import raise_if_moved, read_mark

READ_JOBS = statement("read_jobs")
READ_BLOCKED_JOBS = statement("read_blocked_jobs")
READ_JOBS_BEFORE_GATES = statement("read_jobs_before_gates")
READ_PASSED_JOBS = statement("read_passed_jobs")
READ_STATES = statement("read_states")
READ_GATED = statement("read_gated")
READ_IDS = statement("read_ids")
COUNT_JOBS_BEFORE = statement("count_jobs_before")
READ_LANES = statement("read_lanes")
READ_BUSY_LANES = statement("read_busy_lanes")
COUNT_JOBS_BY_STATE = statement("count_jobs_by_state")
COUNT_JOBS_BEFORE_GATES = statement("count_jobs_before_gates")
READ_NAMESPACES = statement("read_namespaces")
READ_WORKERS = statement("read_workers")
READ_OLDEST_READY = statement("read_oldest_ready")
READ_OLDEST_PASSED = statement("read_oldest_passed")
READ_WAITING_TASKS = statement("read_waiting_tasks")
READ_DEATH_COUNTS = statement("read_death_counts")
READ_AUDIT = statement("read_audit")

WINDOW_OF_IDS = statement("read_window_of_ids")
NEWEST_BELOW = statement("read_newest_below")

NEWEST = 2**63 - 1
NEWEST_ID = b"\xff" * 17  # beyond every id
SCAN_MAX = 20_000  # rows that a page reads from the whole table
BY_ID_INDEX = " indexed by sqlite_autoindex_job_1"
# The index of a state is sorted up to this length; a longer one is skipped.
SORTED_MAX = 20_000
# By state: the index of its jobs, and a query whether it is longer than that.
INDEXES = {
    SCHEDULED: ("job_scheduled", statement("has_many_scheduled")),
    READY: ("job_ready", statement("has_many_ready")),
    RUNNING: ("job_running", statement("has_many_running")),
    DEAD: ("job_dead", statement("has_many_dead")),
}
WIDTH = len(StoredJob._fields)
SEQ = itemgetter(WIDTH)  # after the fields of a StoredJob
CANCEL_ASKED = StoredJob._fields.index("cancel_asked")


class SqliteBrowse(SqliteCapability):
    async def get(self, ids: Sequence[bytes]) -> list[StoredJob]:
        return await self.context.reader.read(lambda db: read_stored_jobs(db, ids))

    async def states(
        self, ids: Sequence[bytes], *, waiting: bool = False
    ) -> dict[bytes, int]:
        wanted = json_text([job_id.hex() for job_id in ids])
        path = self.context.path

        def look(db: Database) -> dict[bytes, int]:
            states: dict[bytes, int] = dict(db.rows(READ_STATES, (wanted,)))
            if waiting and states and max(states.values()) < DONE:
                raise_if_moved(db, path)
            return states

        return await self.context.reader.read(look)

    async def ids_between(
        self, first: bytes, last: bytes, *, limit: int
    ) -> list[bytes]:
        rows = await self.context.reader.read(
            lambda db: db.rows(READ_IDS, (first, last, limit))
        )
        return [job_id for (job_id,) in rows]

    async def ahead(self, job_id: bytes, *, limit: int) -> int:
        return await self.context.reader.read(
            lambda db: db.value(COUNT_JOBS_BEFORE, (job_id, limit))
        )

    async def find(
        self, query: Query, *, limit: int, cursor: str | None, mark: str | None = None
    ) -> Page:
        if mark is not None:
            return await self.context.reader.read(
                lambda db: find_counted(db, query, mark, cursor, limit)
            )
        size, order = max(1, min(limit, PAGE_MAX)), order_of(query)
        before = order.parse(cursor)
        return await self.context.reader.read(
            lambda db: find(db, query, order, size, before)
        )

    async def queues(
        self,
        namespace: str,
        *,
        busy: bool = False,
        counts: bool = False,
        oldest: bool = False,
        heads: int = 0,
        gates: bool = False,
    ) -> list[LaneRow]:
        span = namespace_span(namespace)

        def look(db: Database) -> list[LaneRow]:
            counted = db.rows(COUNT_JOBS_BY_STATE, span) if counts else ()
            since = oldest_ready(db, span) if oldest else ()
            tasks = head_tasks(db, span, heads) if heads > 0 else ()
            gated = db.rows(COUNT_JOBS_BEFORE_GATES, span) if gates else ()
            # Read this last: a queue is stored together with its first job.
            rows = db.rows(READ_BUSY_LANES if busy else READ_LANES, span)
            return lane_rows(rows, counted, since, tasks, gated)

        return await self.context.reader.read(look)

    async def workers(self, namespace: str | None) -> list[WorkerRow]:
        clock = self.context.clock
        rows = await self.context.reader.read(
            lambda db: db.rows(READ_WORKERS, (namespace,))
        )
        boot, ticks = clock.boot_id(), clock.monotonic()
        return [
            worker_row(
                worker, info, expires_at - ticks if of == boot else 0.0, running, vitals
            )
            for worker, info, of, expires_at, running, vitals in rows
        ]

    async def namespaces(self, kinds: Sequence[str] = ()) -> list[str]:
        values = (json_text(list(kinds)),)
        rows = await self.context.reader.read(
            lambda db: db.rows(READ_NAMESPACES, values)
        )
        return [name for (name,) in rows]

    async def tallies(self, namespace: str | None) -> list[DeathCount]:
        span = EVERY_LANE if namespace is None else namespace_span(namespace)
        rows = await self.context.reader.read(
            lambda db: db.rows(READ_DEATH_COUNTS, span)
        )
        return [DeathCount(*row) for row in rows]

    async def gates(self, prefix: str, *, limit: int) -> list[GateRow]:
        if not is_storable(prefix):
            return []
        now = self.context.clock.now()
        return await self.context.reader.read(
            lambda db: read_gates(db, prefix, limit, now)
        )

    async def gated(self, ids: Sequence[bytes]) -> list[GatedJob]:
        wanted = json_text([job_id.hex() for job_id in ids])
        rows = await self.context.reader.read(lambda db: db.rows(READ_GATED, (wanted,)))
        return gated_jobs(ids, rows)

    async def audit(
        self, namespace: str | None, *, limit: int, before: int | None = None
    ) -> list[AuditLine]:
        values = (namespace, before, max(0, limit))
        rows = await self.context.reader.read(lambda db: db.rows(READ_AUDIT, values))
        return [AuditLine(*row) for row in rows]

    async def write_refusal(self) -> str | None:
        mark = await self.context.reader.read(read_mark)
        if mark is None or mark.stage == "draining":
            return None
        return f"its jobs have moved, or are moving, to {mark.to}"


def oldest_ready(db: Database, span: tuple[str, str]) -> list[Row]:
    """Return (lane, since when its oldest ready job could have run)."""
    found: dict[str, float] = dict(db.rows(READ_OLDEST_READY, span))
    for lane, since in db.rows(READ_OLDEST_PASSED, span):
        found[lane] = min(since, found.get(lane, since))
    return list(found.items())


def head_tasks(db: Database, span: tuple[str, str], limit: int) -> list[Row]:
    """Return (lane, task, jobs), from an equal number of waiting jobs of every lane."""
    lanes = db.rows(READ_BUSY_LANES, span)
    share = max(1, limit // max(1, len(lanes)))
    return [
        (lane, *row)
        for lane, *_ in lanes[:limit]
        for row in db.rows(READ_WAITING_TASKS, (lane, share))
    ]


def stored_job_of(row: Row) -> StoredJob:
    """Convert a row of `read_jobs`, without its `seq`."""
    record = StoredJob(*row[:WIDTH])
    return record._replace(cancel_asked=bool(row[CANCEL_ASKED]))


def read_stored_jobs(db: Database, ids: Sequence[bytes]) -> list[StoredJob]:
    """Look up each id by itself, with a statement that is prepared once."""
    found: list[StoredJob] = []
    for job_id in ids:
        rows = db.rows(f"{READ_JOBS} where id = ?", (job_id,))
        found += [stored_job_of(row) for row in rows]
    return found


class PageOrder(NamedTuple):
    """The column that pages are sorted by."""

    column: str
    parse: Callable[[str | None], Any]  # a cursor; raises for other text
    text: Callable[[Any], str]
    place: Callable[[Row], Any]  # of a row of `read_jobs`
    hint: str  # for a scan of the whole table


def find(db: Database, query: Query, order: PageOrder, size: int, before: Any) -> Page:
    """Return one page; it reads one row more to find out whether there is a next page."""
    where, values = state_conditions(query)
    sources, is_whole = sources_of(db, query, order.hint)
    low = window_end(db, query, order, before) if is_whole and where else None
    window = f"{order.column} < ?" + (
        "" if low is None else f" and {order.column} >= ?"
    )
    bounds = (before,) if low is None else (before, low)
    rows: list[Row] = []
    for source in sources:
        sql = f"{source} and {window} {where} order by {order.column} desc limit ?"
        rows += db.rows(sql, (*bounds, *values, size + 1))
    rows.sort(key=order.place, reverse=True)
    shown, cursor = rows[:size], None
    if len(rows) > size:
        cursor = order.text(order.place(shown[-1]))
    elif low is not None:
        cursor = order.text(low)
    return Page([stored_job_of(row) for row in shown], cursor)


def window_end(db: Database, query: Query, order: PageOrder, before: Any) -> Any:
    """Return where a scan of SCAN_MAX rows ends; None if it reaches the last row."""
    if order.column == "id":
        # A byte more than the last id: above it, and below every id after it.
        above = before if query.last_id is None else min(before, query.last_id + b"\0")
        return db.value(WINDOW_OF_IDS, (above, query.first_id or b"", SCAN_MAX))
    newest = db.value(NEWEST_BELOW, (before,))
    # Numbers of jobs that are deleted are not in the way: the next window begins at a job.
    below = None if newest is None else db.value(NEWEST_BELOW, (newest + 1 - SCAN_MAX,))
    return None if below is None else below + 1


def sources_of(db: Database, query: Query, hint: str) -> tuple[tuple[str, ...], bool]:
    """Return where to read the jobs, and whether that is a scan of the whole table.

    A source has the condition for a single state.
    """
    states = query.possible_states
    if states is None or len(states) != 1:
        return (f"{READ_JOBS}{hint} where true",), True
    (state,) = states
    if state == BLOCKED:
        stored = READ_BLOCKED_JOBS, READ_JOBS_BEFORE_GATES
        return tuple(f"{source} where state = 1" for source in stored), False
    index = best_index(db, state)
    source = (
        f"{READ_JOBS}{hint}" if index is None else f"{READ_JOBS} indexed by {index}"
    )
    # Literals, not parameters: SQLite must see the values to use a partial index.
    found = f"{source} where state = {int(state)}"
    if state == DEAD:
        found += " and died_at is not null"  # the condition of the index
    if state == READY:
        return (found, f"{READ_PASSED_JOBS} where state = 1"), index is None
    return (found,), index is None


def best_index(db: Database, state: int) -> str | None:
    """Return the index of a state if it is short.

    Otherwise a scan by arrival is quicker.
    """
    index, has_many = INDEXES.get(state, (None, ""))
    if index is None or db.rows(has_many, (SORTED_MAX,)):
        return None
    return index


def before_cursor(cursor: str | None) -> int:
    """Return where the last page ended; raise if the text is not a cursor."""
    if cursor is None:
        return NEWEST
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) >= len(str(NEWEST)):
        raise invalid_cursor(cursor)
    return int(cursor)


def before_id(cursor: str | None) -> bytes:
    """Return the last id of a page of a range of ids; raise if the text is not a cursor."""
    if cursor is None:
        return NEWEST_ID
    try:
        before = bytes.fromhex(cursor)
    except ValueError:
        before = b""
    if before.hex() != cursor or len(before) != len(NEWEST_ID) - 1:
        raise invalid_cursor(cursor)
    return before


BY_ARRIVAL = PageOrder("seq", before_cursor, str, SEQ, "")
BY_ID = PageOrder("id", before_id, bytes.hex, itemgetter(0), BY_ID_INDEX)


def order_of(query: Query) -> PageOrder:
    """Return the order of pages: that of arrival, or of ids for a range of ids."""
    return BY_ID if query.has_id_range else BY_ARRIVAL
