"""Read the store: jobs by id or page, lanes, counts, workers, tasks.

Pages are sorted by id, newest first. A job keeps its id in every state and queue, so pages
neither miss nor repeat a job. Each table returns its newest ids below the cursor from an
index; only the merged page is read in full, in the same snapshot. A page reads a limited
number of rows. If few of them match, the page may be short or empty and still have a
cursor. Counts read the narrow lane tables, one index entry for every waiting or dead job,
and never the history.
"""

from collections.abc import Sequence
from typing import NamedTuple

from durio.model.job import StoredJob
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
from durio.stores.browsing import (
    EVERY_LANE,
    PAGE_MAX,
    gated_jobs,
    invalid_cursor,
    lane_rows,
    worker_row,
)
from durio.stores.postgres.bulk import find_counted
from durio.stores.postgres.context import PostgresCapability
from durio.stores.postgres.driver import Row
from durio.stores.postgres.filters import (
    ID_BYTES,
    JobSource,
    StatementValues,
    and_conditions,
    by_id,
    can_hold,
    error_column,
    error_matches,
    narrow_conditions,
    sources_of,
    wide_conditions,
)
from durio.stores.postgres.gates import read_gates
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import ReadTransaction

READ_JOBS = statement("read_jobs")

SCAN_MAX = 20_000  # rows per table and page; a shorter lane is sorted
TRY_ROWS = 1000  # rows that are scanned before the length of a lane is looked up
ERRORS_MAX = 1000  # errors read per table and page
NEWEST = b"\xff" * 16
CURSOR_CHARS = 32
ERRORS = StoredJob._fields.index("errors")


class SourcePage(NamedTuple):
    """The newest matching jobs of one source, and how far down it was scanned."""

    ids: list[bytes]
    low: bytes | None  # the lowest id scanned; None: to the end


class Span(NamedTuple):
    """The ids of a page."""

    first: bytes | None  # the page is full of greater ids; None: not yet
    before: bytes

    def above_page(self, looks: Sequence[SourcePage], size: int) -> "Span":
        """Return the span without ids below those that fill the page and end it."""
        ids = sorted((job_id for seen in looks for job_id in seen.ids), reverse=True)
        return self if len(ids) <= size else Span(ids[size], self.before)


async def find_page(
    reading: ReadTransaction, query: Query, size: int, before: bytes
) -> Page:
    """Return one page; it covers all ids that every source has scanned."""
    looks: list[SourcePage] = []
    span = Span(None, before)
    # Other states are rare in `kept`: then the pages of other tables limit its scan.
    for source in sorted(sources_of(query), key=lambda one: one.table == "kept"):
        if can_hold(source, query):
            seen = await newest_in_source(reading, query, source, span, size + 1)
            looks.append(seen)
            span = span.above_page(looks, size)
    shown, low = merge_pages(looks, size)
    records = await read_jobs(reading, shown)
    return Page(records, None if low is None else low.hex())


def merge_pages(
    looks: Sequence[SourcePage], size: int
) -> tuple[list[bytes], bytes | None]:
    """Return the newest ids of all sources, and where the next page begins."""
    low = max((seen.low for seen in looks if seen.low is not None), default=None)
    ids = sorted({job_id for seen in looks for job_id in seen.ids}, reverse=True)
    if low is not None:
        # Some source was not scanned below `low`: the next page returns these ids.
        ids = [job_id for job_id in ids if job_id >= low]
    shown = ids[:size]
    return shown, shown[-1] if len(ids) > size else low


def before_cursor(cursor: str | None) -> bytes:
    """Return where the last page ended; raise if the text is not a cursor."""
    if cursor is None:
        return NEWEST
    try:
        before = bytes.fromhex(cursor)
    except ValueError:
        before = b""
    if len(cursor) != CURSOR_CHARS or before.hex() != cursor:
        raise invalid_cursor(cursor)
    return before


# --- one source


async def newest_in_source(
    reading: ReadTransaction, query: Query, source: JobSource, span: Span, room: int
) -> SourcePage:
    """Return the newest ids of one table that match and are in a span."""
    if len(source.order) == 1:
        return await scan_by_id(reading, query, source, span, room)
    if source.is_final_table:
        # Most rows of `kept` are dead jobs: mostly this fills a page.
        seen = await scan_by_id(reading, query, by_id(source), span, room, TRY_ROWS)
        if seen.low is None or len(seen.ids) >= room:
            return seen
    if await is_too_long_to_sort(reading, query, source):
        return await scan_by_id(reading, query, by_id(source), span, room)
    return await scan_sorted(reading, query, source, span.before, room)


async def scan_by_id(
    reading: ReadTransaction,
    query: Query,
    source: JobSource,
    span: Span,
    room: int,
    scan_max: int = SCAN_MAX,
) -> SourcePage:
    """Scan from the newest id down in the index of ids; at most `scan_max` rows."""
    values = StatementValues()
    window = window_of(query, source, values, span)
    wide = wide_conditions(query, source, values)
    most = room if query.error is None else ERRORS_MAX
    rows = await reading.rows(
        f"""select t.id, {error_column(query, source)}
from (select t.* {window} limit {scan_max}) as t{source.joined}
where {and_conditions(wide)} order by t.id desc limit {most}""",  # noqa: S608 - ours
        *values.given,
    )
    if len(rows) == most:
        return SourcePage(matching_ids(query, rows), rows[-1][0])
    low = await scan_end(reading, query, source, span, scan_max) if wide else None
    return SourcePage(matching_ids(query, rows), low)


async def scan_end(
    reading: ReadTransaction, query: Query, source: JobSource, span: Span, scan_max: int
) -> bytes | None:
    """Return the id at which a limited scan stopped; None if it reached the end."""
    values = StatementValues()
    window = window_of(query, source, values, span)
    sql = f"select t.id {window} offset {scan_max - 1} limit 1"
    return await reading.value(sql, *values.given)


def window_of(
    query: Query, source: JobSource, values: StatementValues, span: Span
) -> str:
    """Return the condition for the rows to scan, in the order of ids."""
    parts = narrow_conditions(query, source, values)
    parts.append(f"t.id < {values.put(span.before, 'uuid')}")
    if span.first is not None:
        parts.append(f"t.id >= {values.put(span.first, 'uuid')}")
    return f"from {{schema}}.{source.table} as t where {and_conditions(parts)} order by t.id desc"


async def is_too_long_to_sort(
    reading: ReadTransaction, query: Query, source: JobSource
) -> bool:
    values = StatementValues()
    parts = narrow_conditions(query, source, values)
    sql = f"""select 1 from {{schema}}.{source.table} as t
where {and_conditions(parts)} offset {SCAN_MAX} limit 1"""  # noqa: S608 - ours
    return bool(await reading.rows(sql, *values.given))


async def scan_sorted(
    reading: ReadTransaction, query: Query, source: JobSource, before: bytes, room: int
) -> SourcePage:
    """Read a short table through its own index, and sort it."""
    values = StatementValues()
    narrow = narrow_conditions(query, source, values)
    wide = wide_conditions(query, source, values)
    # `is true` keeps the planner from using the index of ids, which would scan the whole
    # table.
    below = f"({source.id} < {values.put(before, 'uuid')}) is true"
    most = room if query.error is None else ERRORS_MAX
    joined = source.joined if wide or query.error is not None else ""
    rows = await reading.rows(
        f"""select {source.id} as id, {error_column(query, source)}
from {{schema}}.{source.table} as t{joined}
where {and_conditions([*narrow, *wide, below])}
order by {source.id} desc limit {most}""",  # noqa: S608 - ours
        *values.given,
    )
    return SourcePage(
        matching_ids(query, rows), rows[-1][0] if len(rows) == most else None
    )


def matching_ids(query: Query, rows: Sequence[Row]) -> list[bytes]:
    """Return the ids of the rows whose error also matches."""
    return [job_id for job_id, error in rows if error_matches(query, error)]


# --- records


async def read_jobs(reading: ReadTransaction, ids: Sequence[bytes]) -> list[StoredJob]:
    """Return the jobs with these ids, in this order; unknown ids are left out."""
    return jobs_in_order(ids, await reading.rows(READ_JOBS, list(ids)) if ids else [])


def jobs_in_order(ids: Sequence[bytes], rows: Sequence[Row]) -> list[StoredJob]:
    found = {row[0]: stored_job_of(row) for row in rows}
    return [found[job_id] for job_id in ids if job_id in found]


def stored_job_of(row: Row) -> StoredJob:
    """Convert a row of `read_jobs`; its errors are one JSON list."""
    record = StoredJob(*row)
    errors = row[ERRORS]
    return record._replace(errors=b"[" + b",".join(errors) + b"]" if errors else None)


READ_STATES = statement("read_states")
READ_GATED = statement("read_gated")
READ_IDS = statement("read_ids")
COUNT_JOBS_BEFORE = statement("count_jobs_before")
READ_LANES = statement("read_lanes")
READ_BUSY_LANES = statement("read_busy_lanes")
COUNT_LIVE = statement("count_jobs_by_state")
COUNT_BEFORE_GATES = statement("count_jobs_before_gates")
READ_NAMESPACES = statement("read_namespaces")
READ_WORKERS = statement("read_workers")
READ_OLDEST = statement("read_oldest_ready")
READ_WAITING_TASKS = statement("read_waiting_tasks")
READ_DEATH_COUNTS = statement("read_death_counts")
READ_AUDIT = statement("read_audit")
READ_WRITABLE = statement("read_writable")

IDS_MAX = 1000  # per statement
AUDIT_ROWS_MAX = 2**31 - 1


class PostgresBrowse(PostgresCapability):
    async def get(self, ids: Sequence[bytes]) -> list[StoredJob]:
        found: list[StoredJob] = []
        for some in chunks(ids):
            rows = await self.context.connections.read(READ_JOBS, some)
            found += jobs_in_order(some, rows)
        return found

    async def states(
        self, ids: Sequence[bytes], *, waiting: bool = False
    ) -> dict[bytes, int]:
        del waiting  # jobs never move from PostgreSQL to another store
        found: dict[bytes, int] = {}
        for some in chunks(ids):
            rows = await self.context.connections.read(READ_STATES, some)
            found |= {job_id: state for job_id, state, *_ in rows}
        return found

    async def ids_between(
        self, first: bytes, last: bytes, *, limit: int
    ) -> list[bytes]:
        rows = await self.context.connections.read(READ_IDS, first, last, limit)
        return [job_id for (job_id,) in rows]

    async def ahead(self, job_id: bytes, *, limit: int) -> int:
        rows = await self.context.connections.read(COUNT_JOBS_BEFORE, job_id, limit)
        return rows[0][0]

    async def find(
        self, query: Query, *, limit: int, cursor: str | None, mark: str | None = None
    ) -> Page:
        """Return matching jobs, newest first, at most 200 per page; a page may be short."""
        if mark is not None:
            return await self.context.connections.read_many(
                lambda reading: find_counted(reading, query, mark, cursor, limit)
            )
        size = max(1, min(limit, PAGE_MAX))
        before = before_cursor(cursor)
        return await self.context.connections.read_many(
            lambda reading: find_page(reading, query, size, before)
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
        read, span = self.context.connections.read, namespace_span(namespace)
        counted = await read(COUNT_LIVE, *span) if counts else ()
        since = await read(READ_OLDEST, *span) if oldest else ()
        gated = await read(COUNT_BEFORE_GATES, *span) if gates else ()
        tasks: Sequence[Row] = ()
        if heads > 0:
            tasks = await self.context.connections.read_many(
                lambda reading: head_tasks(reading, span, heads)
            )
        # Read this last: a queue is stored together with its first job.
        rows = await read(READ_BUSY_LANES if busy else READ_LANES, *span)
        return lane_rows(rows, counted, since, tasks, gated)

    async def workers(self, namespace: str | None) -> list[WorkerRow]:
        context = self.context
        now = context.process.lease_time.now()
        rows = await context.connections.read(READ_WORKERS, namespace, now)
        return [worker_row(*row) for row in rows]

    async def namespaces(self, kinds: Sequence[str] = ()) -> list[str]:
        rows = await self.context.connections.read(READ_NAMESPACES, list(kinds))
        return [name for (name,) in rows]

    async def tallies(self, namespace: str | None) -> list[DeathCount]:
        span = EVERY_LANE if namespace is None else namespace_span(namespace)
        rows = await self.context.connections.read(READ_DEATH_COUNTS, *span)
        return [DeathCount(*row) for row in rows]

    async def gates(self, prefix: str, *, limit: int) -> list[GateRow]:
        return await read_gates(self.context, prefix, limit)

    async def gated(self, ids: Sequence[bytes]) -> list[GatedJob]:
        found: list[GatedJob] = []
        for some in chunks(ids):
            rows = await self.context.connections.read(READ_GATED, some)
            found += gated_jobs(some, rows)
        return found

    async def audit(
        self, namespace: str | None, *, limit: int, before: int | None = None
    ) -> list[AuditLine]:
        most = max(0, min(limit, AUDIT_ROWS_MAX))
        rows = await self.context.connections.read(READ_AUDIT, namespace, before, most)
        return [AuditLine(*row) for row in rows]

    async def write_refusal(self) -> str | None:
        rows = await self.context.connections.read(READ_WRITABLE)
        is_replica, is_read_only = rows[0]
        if is_replica:
            return "the server is a replica"
        return "its server is read-only" if is_read_only else None


def chunks(ids: Sequence[bytes]) -> list[list[bytes]]:
    """Split ids into chunks of IDS_MAX; leave out values that are not ids."""
    able = [job_id for job_id in ids if len(job_id) == ID_BYTES]
    return [able[at : at + IDS_MAX] for at in range(0, len(able), IDS_MAX)]


async def head_tasks(
    reading: ReadTransaction, span: tuple[str, str], limit: int
) -> Sequence[Row]:
    """Return (lane, task, jobs), from an equal number of waiting jobs of every lane."""
    lanes = [row[0] for row in await reading.rows(READ_BUSY_LANES, *span)]
    if not lanes:
        return ()
    share = max(1, limit // len(lanes))
    return await reading.rows(READ_WAITING_TASKS, lanes[:limit], share)
