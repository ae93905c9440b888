"""Count the jobs of a bulk action, find them page by page, and check them again.

A count returns a mark: the newest id, the time, and the number of deaths so far. A waiting
or running job is beyond the mark if it arrived after the count, a dead job if it died after
the count. So a job that is retried and dies again is not acted on twice. A job that only
returns to a waiting state had arrived before the count and is included.

A page is read from an index, in a snapshot of its own, and reads a limited number of rows.
"""

from collections.abc import Collection
from math import inf
from typing import Any, NamedTuple

import msgspec

from durio.model.codec import json_text
from durio.model.job import CANCELLED, DEAD, RUNNING
from durio.ports.browse import Page, Query
from durio.ports.control import Counted
from durio.stores.browsing import BULK_JOBS_MAX, invalid_cursor, invalid_mark, one_state
from durio.stores.postgres.filters import (
    DEAD_ROWS,
    ID_BYTES,
    JobSource,
    StatementValues,
    and_conditions,
    can_hold,
    error_column,
    error_matches,
    narrow_conditions,
    place_of,
    source_of_state,
    sources_of,
    wide_conditions,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction, ReadTransaction

READ_MARK = statement("read_bulk_mark")

SCAN_MAX = 20_000  # rows of a table per page
ERRORS_MAX = 1000  # errors read per page

Position = tuple[Any, ...]  # values of the index columns; empty: the beginning

_position_decoder = msgspec.json.Decoder(tuple[str | int | float, ...])


class PostgresBulkMark(NamedTuple):
    """Which jobs a count included."""

    id: bytes
    at: float
    deaths: int

    def __str__(self) -> str:
        return f"{self.id.hex()}:{self.at!r}:{self.deaths}"


def bulk_mark_from_text(text: str) -> PostgresBulkMark:
    """Parse the mark that `count` returned; refuse any other text."""
    try:
        newest, at, deaths = text.split(":")
        mark = PostgresBulkMark(bytes.fromhex(newest), float(at), int(deaths))
    except ValueError:
        mark = PostgresBulkMark(b"", 0.0, 0)
    if len(mark.id) != ID_BYTES or not 0 <= mark.deaths < 2**63:
        raise invalid_mark(text)
    return mark


# --- counting


async def count_jobs(reading: ReadTransaction, query: Query) -> Counted:
    """Count the jobs; number and mark come from the same snapshot."""
    newest, deaths = (await reading.rows(READ_MARK))[0]
    jobs, at = 0, await reading.now()
    for source in sources_of(query):
        if can_hold(source, query):
            counted, latest = await count_in(reading, query, source)
            jobs, at = jobs + counted, max(at, latest)
    return Counted(jobs, str(PostgresBulkMark(newest or bytes(ID_BYTES), at, deaths)))


async def count_at_most(reading: ReadTransaction, query: Query, most: int) -> Counted:
    """Count up to this number and return no mark."""
    jobs = 0
    for source in sources_of(query):
        if not can_hold(source, query) or jobs >= most:
            continue
        if query.error:
            jobs += await count_errors(reading, query, source, most)
            continue
        values = StatementValues()
        parts = narrow_conditions(query, source, values)
        where = and_conditions(parts + wide_conditions(query, source, values))
        table = f"{{schema}}.{source.table} as t{source.joined}"
        found = f"select 1 from {table} where {where} limit {most}"  # noqa: S608 - ours
        sql = f"select count(*) from ({found}) as found"  # noqa: S608 - ours
        jobs += await reading.value(sql, *values.given)
    return Counted(min(jobs, most), "")


async def count_in(
    reading: ReadTransaction, query: Query, source: JobSource
) -> tuple[int, float]:
    """Return how many jobs match, and the latest of their times.

    That time may be later than ours, because another clock was ahead. Deaths are numbered,
    so a count of dead letters needs no time.
    """
    values = StatementValues()
    where = and_conditions(
        narrow_conditions(query, source, values)
        + wide_conditions(query, source, values)
    )
    latest, joined = "0::float8", source.joined
    if source != DEAD_ROWS:
        ended = "max(t.finished_at)" if source.is_final_table else "0"
        latest = f"coalesce(greatest(max({source.job}.created_at), {ended}), 0)"
    rows = await reading.rows(
        f"select count(*), {latest} "  # noqa: S608 - ours
        f"from {{schema}}.{source.table} as t{joined} where {where}",
        *values.given,
    )
    jobs, moment = rows[0]
    return (await count_errors(reading, query, source) if query.error else jobs), moment


async def count_errors(
    reading: ReadTransaction, query: Query, source: JobSource, most: float = inf
) -> int:
    """Return how many jobs have a newest error that matches, read page by page."""
    jobs, after = 0, ()
    while after is not None and jobs < most:
        found, after = await find_in_source(
            reading, query, source, [], after, ERRORS_MAX
        )
        jobs += len(found)
    return jobs


# --- pages


async def find_counted(
    reading: ReadTransaction, query: Query, mark: str, cursor: str | None, limit: int
) -> Page:
    """Return the next jobs of one state that match and are not beyond the mark."""
    state = one_state(query)
    if state is None:
        return Page([], None)
    source = source_of_state(state)
    after, last = position_of(cursor, source), bulk_mark_from_text(mark)
    if not can_hold(source, query):
        return Page([], None)
    room = max(1, min(limit, BULK_JOBS_MAX))
    ids, then = await find_in_source(
        reading, query, source, [(state, last)], after, room
    )
    return Page([], None if then is None else cursor_of(then), ids)


def cursor_of(position: Position) -> str:
    """Return the position of the last job read, as text."""
    parts = [part.hex() if isinstance(part, bytes) else part for part in position]
    return json_text(parts)


def position_of(cursor: str | None, source: JobSource) -> Position:
    """Parse the position of the last job read; refuse text that the store did not write."""
    if cursor is None:
        return ()
    position: Position = ()
    try:
        *others, job_id = _position_decoder.decode(cursor)
        position = (*others, bytes.fromhex(str(job_id)))
    except ValueError:  # also for text that is not JSON
        pass
    if len(position) != len(source.order) or len(position[-1]) != ID_BYTES:
        raise invalid_cursor(cursor)
    return position


async def find_in_source(
    reading: ReadTransaction,
    query: Query,
    source: JobSource,
    beyond: Collection[tuple[int, PostgresBulkMark]],
    after: Position,
    room: int,
) -> tuple[list[bytes], Position | None]:
    """Return at most `room` jobs of one source after a position, in the order of its index.

    The second value is where the next page begins; None if the source is exhausted.
    """
    values = StatementValues()
    window = scan_window(query, source, after, values)
    wide = wide_conditions(query, source, values)
    for state, mark in beyond:
        wide += before_mark(mark, state, source, values)
    keys, order = ", ".join(source.columns), order_of(query, source)
    error = error_column(query, source)
    most = room if query.error is None else ERRORS_MAX
    rows = await reading.rows(
        f"""select {source.id} as id, {error}, {keys}
from (select t.* {window} limit {SCAN_MAX}) as t{source.joined}
where {and_conditions(wide)} order by {order} limit {most}""",  # noqa: S608 - ours
        *values.given,
    )
    found: list[bytes] = []
    for job_id, said, *key in rows:
        if error_matches(query, said):
            found.append(job_id)
        if len(found) == room:
            return found, tuple(key)
    if len(rows) == most:
        return found, tuple(rows[-1][2:])
    return found, await scan_end(reading, query, source, after)


async def scan_end(
    reading: ReadTransaction, query: Query, source: JobSource, after: Position
) -> Position | None:
    """Return the last row that a limited page read; None if it reached the end."""
    values = StatementValues()
    window = scan_window(query, source, after, values)
    keys = ", ".join(source.columns)
    rows = await reading.rows(
        f"select {keys} {window} offset {SCAN_MAX - 1} limit 1", *values.given
    )
    return tuple(rows[0]) if rows else None


def scan_window(
    query: Query, source: JobSource, after: Position, values: StatementValues
) -> str:
    """Return the SQL for the rows to scan, in the order of the index."""
    parts = narrow_conditions(query, source, values)
    keys = ", ".join(source.columns)
    if after:
        kinds = [kind for _, kind in source.order]
        places = [values.put(*one) for one in zip(after, kinds, strict=True)]
        parts.append(f"({keys}) > ({', '.join(places)})")
    order = order_of(query, source)
    return f"from {{schema}}.{source.table} as t where {and_conditions(parts)} order by {order}"


def order_of(query: Query, source: JobSource) -> str:
    """Return the columns to sort by.

    With a single queue, the queue is left out, so that the planner can use the index.
    """
    is_one = source.has_lane and query.lane is not None
    return ", ".join(source.columns[1:] if is_one else source.columns)


def before_mark(
    mark: PostgresBulkMark, state: int, source: JobSource, values: StatementValues
) -> list[str]:
    """Return conditions for jobs that had arrived, or died, before the count."""
    if state == DEAD:
        return [f"coalesce(t.died_no, 0) <= {values.put(mark.deaths, 'int8')}"]
    moment = "t.finished_at" if state == CANCELLED else f"{source.job}.created_at"
    parts = [
        f"{source.id} <= {values.put(mark.id, 'uuid')}",
        f"{moment} <= {values.put(mark.at, 'float8')}",
    ]
    # A job with `cancel` is being cancelled already.
    return [*parts, "not t.cancel"] if state == RUNNING else parts


# --- checking again


async def matching_jobs(
    tx: PostgresTransaction,
    query: Query,
    mark: PostgresBulkMark,
    state: int,
    ids: Collection[bytes],
) -> set[bytes]:
    """Return those of the locked jobs that still match and are not beyond the mark."""
    source, values = source_of_state(state), StatementValues()
    if not can_hold(source, query):
        return set()
    parts = narrow_conditions(query, source, values)
    parts += wide_conditions(query, source, values)
    parts += before_mark(mark, state, source, values)
    parts.append(f"{source.job}.id = any({values.put(list(ids), 'uuid[]')})")
    error = error_column(query, source)
    rows: Any = await tx.rows(
        f"select {source.id} as id, {error} from {join_by_id(source)} where {and_conditions(parts)}",  # noqa: S608 - ours
        *values.given,
    )
    return {row[0] for row in rows if error_matches(query, row[1])}


def join_by_id(source: JobSource) -> str:
    """Return the join that finds rows by id; a lane row is found through its job."""
    table = f"{{schema}}.{source.table} as t"
    if not source.is_lane:
        return table
    same = " and ".join(f"t.{name} = j.{name}" for name, _ in source.order)
    if source.table == "ready":
        same = same.replace("t.id = j.id", f"t.id = {place_of('j.id')}")
    return f"{{schema}}.job as j join {table} on {same}"
