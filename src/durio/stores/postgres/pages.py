"""Pages, newest first, across live jobs, those that are kept, and the history.

Newest is by id: ids grow with their producers' clocks, and a job keeps its id wherever it
goes, so that pages miss none and repeat none while jobs move on. Each table gives its
newest ids below the cursor by an index, the ids are merged, and only the page itself is
read in full; all of it in one snapshot.

A look is bounded: where few jobs fit, a page may be short, or empty, and still say where
to go on.
"""

from collections.abc import Sequence
from typing import NamedTuple

from durio.model.errors import InvalidOption
from durio.model.job import Record
from durio.ports.browse import Page, Query
from durio.stores.postgres.driver import Row
from durio.stores.postgres.filters import (
    Source,
    Values,
    all_of,
    by_id,
    can_hold,
    last_error,
    narrow_conditions,
    says,
    sources_of,
    wide_conditions,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Reading

READ_JOBS = statement("browse_jobs")

PAGE_MAX = 200
LOOK_MAX = 20_000  # rows of a table, per page; a shorter lane is simply sorted
ERRORS_MAX = 1000  # errors read, per table and page
NEWEST = b"\xff" * 16
CURSOR_CHARS = 32
ERRORS = Record._fields.index("errors")


class Looked(NamedTuple):
    """The newest jobs of one source that fit, and how far down was looked."""

    ids: list[bytes]
    low: bytes | None  # None: to the end


async def find_page(reading: Reading, query: Query, size: int, before: bytes) -> Page:
    """One page; it is complete down to where every source was looked at."""
    looks = [
        await look(reading, query, source, before, size + 1)
        for source in sources_of(query)
        if can_hold(source, query)
    ]
    shown, low = merged(looks, size)
    records = await read_jobs(reading, shown)
    return Page(records, None if low is None else low.hex())


def merged(looks: Sequence[Looked], size: int) -> tuple[list[bytes], bytes | None]:
    """The newest of all sources, and where the next page begins."""
    low = max((seen.low for seen in looks if seen.low is not None), default=None)
    ids = sorted({job_id for seen in looks for job_id in seen.ids}, reverse=True)
    if low is not None:
        # Below that some source was not looked at: the next page has these again.
        ids = [job_id for job_id in ids if job_id >= low]
    shown = ids[:size]
    return shown, shown[-1] if len(ids) > size else low


def before_cursor(cursor: str | None) -> bytes:
    """Where the last page ended; text that we did not write is refused."""
    if cursor is None:
        return NEWEST
    try:
        before = bytes.fromhex(cursor)
    except ValueError:
        before = b""
    if len(cursor) != CURSOR_CHARS or before.hex() != cursor:
        raise InvalidOption(
            f"{cursor[:40]!r} is no cursor", cure="Pass back what the last page gave."
        )
    return before


# --- one source


async def look(
    reading: Reading, query: Query, source: Source, before: bytes, room: int
) -> Looked:
    """The newest of one table that fit and are below a cursor."""
    if len(source.order) == 1:
        return await look_down(reading, query, source, before, room)
    if await is_long(reading, query, source):
        return await look_down(reading, query, by_id(source), before, room)
    return await look_sorted(reading, query, source, before, room)


async def look_down(
    reading: Reading, query: Query, source: Source, before: bytes, room: int
) -> Looked:
    """From the newest to older ones, by the index of ids; so many are passed by at most."""
    values = Values()
    window = window_of(query, source, values, before)
    wide = wide_conditions(query, source, values)
    most = room if query.error is None else ERRORS_MAX
    rows = await reading.rows(
        f"""select t.id, {error_asked(query, source)}
from (select t.* {window} limit {LOOK_MAX}) as t{source.joined}
where {all_of(wide)} order by t.id desc limit {most}""",  # noqa: S608 - ours
        *values.given,
    )
    if len(rows) == most:
        return Looked(fitting(query, rows), rows[-1][0])
    low = await last_passed_by(reading, query, source, before) if wide else None
    return Looked(fitting(query, rows), low)


async def last_passed_by(
    reading: Reading, query: Query, source: Source, before: bytes
) -> bytes | None:
    """The end of a look that was cut short; None: there was no more."""
    values = Values()
    window = window_of(query, source, values, before)
    sql = f"select t.id {window} offset {LOOK_MAX - 1} limit 1"
    return await reading.value(sql, *values.given)


def window_of(query: Query, source: Source, values: Values, before: bytes) -> str:
    """What is looked at, in the order of ids."""
    parts = narrow_conditions(query, source, values)
    parts.append(f"t.id < {values.put(before, 'uuid')}")
    return (
        f"from {{schema}}.{source.table} as t where {all_of(parts)} order by t.id desc"
    )


async def is_long(reading: Reading, query: Query, source: Source) -> bool:
    """Whether there are too many to sort."""
    values = Values()
    parts = narrow_conditions(query, source, values)
    sql = f"""select 1 from {{schema}}.{source.table} as t
where {all_of(parts)} offset {LOOK_MAX} limit 1"""  # noqa: S608 - ours
    return bool(await reading.rows(sql, *values.given))


async def look_sorted(
    reading: Reading, query: Query, source: Source, before: bytes, room: int
) -> Looked:
    """All of a short table, by its own index."""
    values = Values()
    narrow = narrow_conditions(query, source, values)
    wide = wide_conditions(query, source, values)
    # Not for the index of ids: that one leads past everything else in the table.
    below = f"(t.id < {values.put(before, 'uuid')}) is true"
    most = room if query.error is None else ERRORS_MAX
    joined = source.joined if wide or query.error is not None else ""
    rows = await reading.rows(
        f"""select t.id, {error_asked(query, source)}
from {{schema}}.{source.table} as t{joined}
where {all_of([*narrow, *wide, below])}
order by t.id desc limit {most}""",  # noqa: S608 - ours
        *values.given,
    )
    return Looked(fitting(query, rows), rows[-1][0] if len(rows) == most else None)


def error_asked(query: Query, source: Source) -> str:
    """The newest error, where anybody wants to know."""
    return "null" if query.error is None else last_error(source)


def fitting(query: Query, rows: Sequence[Row]) -> list[bytes]:
    """The ids of those whose error fits too."""
    if query.error is None:
        return [job_id for job_id, _ in rows]
    folded = query.error.casefold()
    return [job_id for job_id, error in rows if says(error, folded)]


# --- records


async def read_jobs(reading: Reading, ids: Sequence[bytes]) -> list[Record]:
    """The records of these, in this order; unknown ones are missing."""
    return in_order(ids, await reading.rows(READ_JOBS, list(ids)) if ids else [])


def in_order(ids: Sequence[bytes], rows: Sequence[Row]) -> list[Record]:
    """Records as they were asked for."""
    found = {row[0]: record_of(row) for row in rows}
    return [found[job_id] for job_id in ids if job_id in found]


def record_of(row: Row) -> Record:
    """A row of `browse_jobs`; its errors are one JSON list."""
    record = Record(*row)
    errors = row[ERRORS]
    return record._replace(errors=b"[" + b",".join(errors) + b"]" if errors else None)
