"""Reading the store: jobs by id or page, lanes, counts, workers, tasks.

Pages go newest first by arrival (`seq`), each beginning where the last one ended, so a page
costs the same however deep it is. Counts read index entries only, one per waiting or dead
job: about 0.1 s per million.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from durio.model.errors import InvalidOption
from durio.model.job import DEAD, READY, RUNNING, SCHEDULED, Record
from durio.ports.browse import LaneRow, Page, Query, WorkerRow
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.desk import AtDesk
from durio.stores.sqlite.lease import tasks_kind
from durio.stores.sqlite.statements import statement

READ_JOBS = statement("read_jobs")
READ_STATES = statement("read_states")
READ_LANES = statement("read_lanes")
READ_BUSY_LANES = statement("read_busy_lanes")
COUNT_LIVE = statement("count_live")
READ_WORKERS = statement("read_workers")
READ_TASKS = statement("read_tasks")

PAGE_MAX = 200
NEWEST = 2**63 - 1
# A state's own index is small enough to sort; a longer one is better passed by.
SORTED_MAX = 20_000
# State -> the index of its jobs, and a question whether it is longer than that.
INDEXES = {
    SCHEDULED: ("job_scheduled", statement("has_many_scheduled")),
    READY: ("job_ready", statement("has_many_ready")),
    RUNNING: ("job_running", statement("has_many_running")),
    DEAD: ("job_dead", statement("has_many_dead")),
}
WIDTH = len(Record._fields)
CANCEL_ASKED = Record._fields.index("cancel_asked")

Row = tuple[Any, ...]


class SqliteBrowse(AtDesk):
    """Read-only questions, on what is committed."""

    async def get(self, ids: Sequence[bytes]) -> list[Record]:
        """The stored records of these ids, in this order; unknown ones are missing."""
        return await self.desk.reader.read(lambda db: get_jobs(db, ids))

    async def states(self, ids: Sequence[bytes]) -> dict[bytes, int]:
        """Only the states: what waiters poll."""
        wanted = msgspec.json.encode([job_id.hex() for job_id in ids]).decode()
        return await self.desk.reader.read(
            lambda db: dict(db.rows(READ_STATES, (wanted,)))
        )

    async def find(self, query: Query, *, limit: int, cursor: str | None) -> Page:
        """Newest first, by keyset, at most 200 a page."""
        size = max(1, min(limit, PAGE_MAX))
        before = before_cursor(cursor)
        return await self.desk.reader.read(lambda db: find(db, query, size, before))

    async def lanes(self, namespace: str, *, busy: bool = False) -> list[LaneRow]:
        """Every queue of a namespace that was ever used, or those with jobs that wait."""
        span = prefix_span(f"{namespace}:")
        sql = READ_BUSY_LANES if busy else READ_LANES
        rows = await self.desk.reader.read(lambda db: db.rows(sql, span))
        return [LaneRow(name, bool(paused)) for name, paused in rows]

    async def counts(self, namespace: str) -> dict[str, dict[int, int]]:
        """Lane -> state -> jobs, for states that are not final, and dead."""
        span = prefix_span(f"{namespace}:")
        rows = await self.desk.reader.read(lambda db: db.rows(COUNT_LIVE, span))
        counted: dict[str, dict[int, int]] = {}
        for lane, state, jobs in rows:
            counted.setdefault(lane, {})[state] = jobs
        return counted

    async def workers(self, namespace: str | None) -> list[WorkerRow]:
        """Who is registered."""
        clock = self.desk.clock
        rows = await self.desk.reader.read(
            lambda db: db.rows(READ_WORKERS, (namespace,))
        )
        boot, ticks = clock.boot_id(), clock.monotonic()
        return [
            WorkerRow(
                id=worker,
                info=msgspec.json.decode(info),
                lease_seconds_left=max(0.0, expires_at - ticks) if of == boot else 0.0,
                running=running,
            )
            for worker, info, of, expires_at, running in rows
        ]

    async def tasks(self, namespace: str) -> dict[str, dict[str, Any]] | None:
        """What workers published about their tasks; None: nothing is known."""
        kind = tasks_kind(namespace)
        rows = await self.desk.reader.read(lambda db: db.rows(READ_TASKS, (kind,)))
        return {name: msgspec.json.decode(body) for name, body in rows} or None


def record_of(row: Row) -> Record:
    """A row of `read_jobs` without its place."""
    record = Record(*row[:WIDTH])
    return record._replace(cancel_asked=bool(row[CANCEL_ASKED]))


def get_jobs(db: Database, ids: Sequence[bytes]) -> list[Record]:
    """One look-up each: the statement is prepared once."""
    found: list[Record] = []
    for job_id in ids:
        rows = db.rows(f"{READ_JOBS} where id = ?", (job_id,))
        found += [record_of(row) for row in rows]
    return found


def find(db: Database, query: Query, size: int, before: int) -> Page:
    """One page; one row more than asked for tells whether there is another."""
    where, values = conditions(query)
    index = best_index(db, query)
    source = READ_JOBS if index is None else f"{READ_JOBS} indexed by {index}"
    sql = f"{source} where seq < ? {where} order by seq desc limit ?"
    rows = db.rows(sql, (before, *values, size + 1))
    shown = rows[:size]
    cursor = str(shown[-1][WIDTH]) if len(rows) > size else None
    return Page([record_of(row) for row in shown], cursor)


def conditions(query: Query) -> tuple[str, list[Any]]:
    """The query as SQL; the values travel apart."""
    parts: list[str] = []
    values: list[Any] = []
    if query.namespace is not None:
        parts.append("queue >= ? and queue < ?")
        values += prefix_span(f"{query.namespace}:")
    if query.lane is not None:
        parts.append("queue = ?")
        values.append(query.lane)
    if query.task is not None:
        parts.append("task = ?")
        values.append(query.task)
    if query.states is not None:
        # Numbers of ours, written out: a partial index needs to see them.
        named = [str(int(state)) for state in query.states]
        parts.append(f"state = {named[0]}" if len(named) == 1 else one_of(named))
        if query.states == (DEAD,):
            parts.append("died_at is not null")  # the condition of the index
    return "".join(f" and {part}" for part in parts), values


def one_of(named: Sequence[str]) -> str:
    """Any of several states; of none at all, nothing."""
    return f"state in ({', '.join(named)})"


def best_index(db: Database, query: Query) -> str | None:
    """The index of a single state, while it is short; else going by arrival is quicker."""
    if query.states is None or len(query.states) != 1:
        return None
    index, has_many = INDEXES.get(query.states[0], (None, ""))
    if index is None or db.rows(has_many, (SORTED_MAX,)):
        return None
    return index


def prefix_span(prefix: str) -> tuple[str, str]:
    """Everything that begins with a prefix lies between these two."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def before_cursor(cursor: str | None) -> int:
    """Where the last page ended; text that we did not write is refused."""
    if cursor is None:
        return NEWEST
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) >= len(str(NEWEST)):
        raise InvalidOption(
            f"{cursor[:40]!r} is no cursor", cure="Pass back what the last page gave."
        )
    return int(cursor)
