"""Count the jobs of a bulk action, find them page by page, and check them again.

A count returns a mark: the newest arrival, the time, and the number of deaths so far. A
waiting or running job is beyond the mark if it arrived after the count, a dead job if it
died after the count. So a job that is retried and dies again is not acted on twice. A job
that only returns to a waiting state had arrived before the count and is included.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from durio.model.codec import json_text
from durio.model.job import CANCELLED, DEAD, RUNNING
from durio.ports.browse import Page, Query
from durio.ports.control import Counted
from durio.stores.browsing import BULK_JOBS_MAX, invalid_cursor, invalid_mark, one_state
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.filters import IndexWalk, conditions, walks_of
from durio.stores.sqlite.statements import statement

READ_BULK_MARK = statement("read_bulk_mark")


# The part of the walk, and the position of the last job there; at first it is empty.
_position_decoder = msgspec.json.Decoder(tuple[int, tuple[str | int | float, ...]])


class SqliteBulkMark(NamedTuple):
    """Which jobs a count included."""

    seq: int
    at: float
    deaths: int

    def __str__(self) -> str:
        return f"{self.seq}:{self.at!r}:{self.deaths}"


def bulk_mark_from_text(text: str) -> SqliteBulkMark:
    """Parse the mark that `count` returned; refuse any other text."""
    try:
        seq, at, deaths = text.split(":")
        return SqliteBulkMark(int(seq), float(at), int(deaths))
    except ValueError:
        raise invalid_mark(text) from None


def count_jobs(
    db: Database, query: Query, now: float, most: int | None = None
) -> Counted:
    """Count in one statement, so that number and mark are of the same moment."""
    states = query.possible_states
    parts: list[tuple[str, list[Any]]] = []
    if states is None:
        where, values = conditions(query, dead=False)
        parts.append((f"job where true {where}", values))
    for state in sorted(set(states or ())):
        where, values = conditions(query, dead=state == DEAD)
        parts += [
            (f"{walk.source} where {walk.condition} {where}", values)
            for walk in walks_of(state)
        ]
    if most is not None:
        parts = [(f"(select 1 from {part} limit {most})", v) for part, v in parts]  # noqa: S608
    total = " + ".join(f"(select count(*) from {part})" for part, _ in parts)  # noqa: S608
    given = [value for _, values in parts for value in values]
    seq, at, deaths, jobs = db.rows(f"{READ_BULK_MARK}, {total or '0'}", given)[0]
    if most is not None:
        return Counted(min(jobs, most), "")
    at = max(now, at, latest_moment(db, parts, states))
    return Counted(jobs, str(SqliteBulkMark(seq, at, deaths)))


def latest_moment(
    db: Database, parts: list[tuple[str, list[Any]]], states: tuple[int, ...] | None
) -> float:
    """Return the latest time of the counted jobs.

    Another clock may have been ahead of ours. Deaths are numbered and need no time, so a
    query for dead jobs does not read it.
    """
    if states is not None and set(states) <= {DEAD}:
        return 0.0
    moments = "max(max(created_at), coalesce(max(finished_at), 0))"
    rows = [
        db.value(f"select {moments} from {part}", values)  # noqa: S608 - ours
        for part, values in parts
    ]
    return max((moment or 0.0 for moment in rows), default=0.0)


def find_counted(
    db: Database, query: Query, mark: str, cursor: str | None, limit: int
) -> Page:
    """Return the next jobs of one state that match and are not beyond the mark."""
    state = one_state(query)
    if state is None:
        return Page([], None)
    size = max(1, min(limit, BULK_JOBS_MAX))
    last, walks = bulk_mark_from_text(mark), walks_of(state)
    part, after = position_of(cursor, walks)
    where, values = matching_conditions(query, last, state)
    while True:
        rows = find_in_walk(db, walks[part], where, values, after, size)
        is_last = part + 1 == len(walks)
        if rows or is_last:
            break
        part, after = part + 1, ()
    position = (part, rows[-1][1:]) if len(rows) == size else (part + 1, ())
    then = None if is_last and len(rows) < size else json_text(position)
    return Page([], then, [row[0] for row in rows])


def position_of(
    cursor: str | None, walks: Sequence[IndexWalk]
) -> tuple[int, tuple[Any, ...]]:
    """Parse the part and the position of the last job read.

    Refuse text that the store did not write.
    """
    if cursor is None:
        return 0, ()
    try:
        part, position = _position_decoder.decode(cursor)
    except msgspec.DecodeError:
        raise invalid_cursor(cursor) from None
    if not 0 <= part < len(walks):
        raise invalid_cursor(cursor)
    if len(position) not in (0, len(walks[part].order)):
        raise invalid_cursor(cursor)
    return part, position


def find_in_walk(
    db: Database,
    walk: IndexWalk,
    where: str,
    values: Sequence[Any],
    after: tuple[Any, ...],
    room: int,
) -> list[tuple[Any, ...]]:
    """Return at most `room` jobs after a position, in the order of the index."""
    source, condition, order = walk
    where = f"{condition} {where}"
    columns = ", ".join(order)
    if after:
        where += f" and ({columns}) > ({', '.join('?' * len(order))})"
        values = [*values, *after]
    sql = f"select id, {columns} from {source} where {where}"  # noqa: S608 - ours
    return db.rows(f"{sql} order by {columns} limit ?", (*values, room))


def still_matches(
    db: Database, query: Query, mark: SqliteBulkMark, state: int, job_id: bytes
) -> bool:
    """Whether a job that was just found still matches."""
    where, values = matching_conditions(query, mark, state)
    sql = f"select 1 from job where true {where} and id = ?"  # noqa: S608 - ours
    return bool(db.rows(sql, (*values, job_id)))


def matching_conditions(
    query: Query, mark: SqliteBulkMark, state: int
) -> tuple[str, list[Any]]:
    """Return the conditions of the query for jobs of one state, up to the mark."""
    where, values = conditions(query, dead=state == DEAD)
    if state == DEAD:
        beyond, limits = "coalesce(died_no, 0) <= ?", [mark.deaths]
    elif state == CANCELLED:
        beyond, limits = "seq <= ? and finished_at <= ?", [mark.seq, mark.at]
    else:
        beyond, limits = "seq <= ? and created_at <= ?", [mark.seq, mark.at]
    if state == RUNNING:
        beyond += " and not cancel"  # such jobs are being cancelled already
    return f"{where} and {beyond}", [*values, *limits]
