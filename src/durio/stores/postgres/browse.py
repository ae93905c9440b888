"""Reading the store: jobs by id or page, lanes, counts, workers, tasks.

Counts read the narrow lanes, one index entry for every waiting or dead job; nothing ever
counts the history.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from durio.model.job import Record
from durio.ports.browse import Audited, LaneRow, Page, Query, Tally, WorkerRow
from durio.ports.lease import Vitals
from durio.stores.postgres.desk import AtDesk
from durio.stores.postgres.filters import ID_BYTES, prefix_span
from durio.stores.postgres.pages import (
    PAGE_MAX,
    READ_JOBS,
    before_cursor,
    find_page,
    in_order,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.tasks import signatures_kind, tasks_kind
from durio.stores.postgres.transaction import Reading

READ_STATES = statement("browse_states")
READ_LANES = statement("browse_lanes")
READ_BUSY_LANES = statement("browse_busy_lanes")
COUNT_LIVE = statement("browse_counts")
READ_WORKERS = statement("browse_workers")
READ_OLDEST = statement("browse_oldest")
READ_WAITING_TASKS = statement("browse_waiting_tasks")
READ_TASKS = statement("doc_read_tasks")
READ_SIGNATURES = statement("doc_read_signatures")
READ_TALLIES = statement("tally_read")
READ_AUDIT = statement("audit_read")

IDS_MAX = 1000  # asked for in one statement
LINES_MAX = 2**31 - 1
EVERY_LANE = ("\1", "\U0010ffff")  # not "", under which the tally numbers the deaths

_vitals_decoder = msgspec.json.Decoder(Vitals)


class PostgresBrowse(AtDesk):
    """Read-only questions, on what is committed."""

    async def get(self, ids: Sequence[bytes]) -> list[Record]:
        """The stored records of these ids, in this order; unknown ones are missing."""
        found: list[Record] = []
        for some in chunks(ids):
            rows = await self.desk.lines.read(READ_JOBS, some)
            found += in_order(some, rows)
        return found

    async def states(
        self, ids: Sequence[bytes], *, waiting: bool = False
    ) -> dict[bytes, int]:
        """Only the states: what waiters poll."""
        del waiting  # nothing ever moves away from here
        found: dict[bytes, int] = {}
        for some in chunks(ids):
            rows = await self.desk.lines.read(READ_STATES, some)
            found |= {job_id: state for job_id, state, *_ in rows}
        return found

    async def find(self, query: Query, *, limit: int, cursor: str | None) -> Page:
        """Newest first, by keyset, at most 200 a page; a page may be short."""
        size = max(1, min(limit, PAGE_MAX))
        before = before_cursor(cursor)
        return await self.desk.lines.read_many(
            lambda reading: find_page(reading, query, size, before)
        )

    async def lanes(self, namespace: str, *, busy: bool = False) -> list[LaneRow]:
        """Every queue of a namespace that was ever used, or those with jobs that wait."""
        sql = READ_BUSY_LANES if busy else READ_LANES
        rows = await self.desk.lines.read(sql, *prefix_span(f"{namespace}:"))
        return [lane_row(*row) for row in rows]

    async def counts(self, namespace: str) -> dict[str, dict[int, int]]:
        """Lane -> state -> jobs, for states that are not final, and dead."""
        span = prefix_span(f"{namespace}:")
        counted: dict[str, dict[int, int]] = {}
        for lane, state, jobs in await self.desk.lines.read(COUNT_LIVE, *span):
            counted.setdefault(lane, {})[state] = jobs
        return counted

    async def workers(self, namespace: str | None) -> list[WorkerRow]:
        """Who is registered."""
        desk = self.desk
        now = desk.local.lease_time.now()
        rows = await desk.lines.read(READ_WORKERS, namespace, now)
        return [
            WorkerRow(
                id=worker,
                info=msgspec.json.decode(info),
                lease_seconds_left=left,
                running=running,
                vitals=vitals_of(vitals),
            )
            for worker, info, left, running, vitals in rows
        ]

    async def tasks(self, namespace: str) -> dict[str, dict[str, Any]] | None:
        """What workers published about their tasks; None: nothing is known."""
        rows = await self.desk.lines.read(READ_TASKS, tasks_kind(namespace))
        return {name: msgspec.json.decode(body) for name, body in rows} or None

    async def signatures(self, task: str) -> set[str]:
        """Marks of the parameters that workers published for a task of late."""
        kind = signatures_kind(task.partition(".")[0])
        span = prefix_span(f"{task} ")
        rows = await self.desk.lines.read(READ_SIGNATURES, kind, *span)
        return {name.rpartition(" ")[2] for (name,) in rows}

    async def oldest(self, namespace: str) -> dict[str, float]:
        """Lane -> since when its oldest ready job could have run, absolute seconds."""
        span = prefix_span(f"{namespace}:")
        return dict(await self.desk.lines.read(READ_OLDEST, *span))

    async def waiting_tasks(self, namespace: str, *, limit: int) -> dict[str, int]:
        """Task -> waiting jobs, seen in a bounded look at the heads of all queues."""
        return await self.desk.lines.read_many(
            lambda reading: waiting_tasks(reading, namespace, limit)
        )

    async def tallies(self, namespace: str | None) -> list[Tally]:
        """Dead letters ever, by queue, task and type of error."""
        span = EVERY_LANE if namespace is None else prefix_span(f"{namespace}:")
        rows = await self.desk.lines.read(READ_TALLIES, *span)
        return [Tally(*row) for row in rows]

    async def audit(self, namespace: str | None, *, limit: int) -> list[Audited]:
        """What people did, the newest first."""
        most = max(0, min(limit, LINES_MAX))
        rows = await self.desk.lines.read(READ_AUDIT, namespace, most)
        return [Audited(*row) for row in rows]


def chunks(ids: Sequence[bytes]) -> list[list[bytes]]:
    """Ids, some at a time; what is none can name no job."""
    able = [job_id for job_id in ids if len(job_id) == ID_BYTES]
    return [able[at : at + IDS_MAX] for at in range(0, len(able), IDS_MAX)]


def vitals_of(stored: str | None) -> Vitals | None:
    """What a worker last told; other code may tell it otherwise."""
    try:
        return None if stored is None else _vitals_decoder.decode(stored)
    except msgspec.DecodeError:
        return None


def lane_row(
    name: str,
    paused: bool,  # noqa: FBT001 - a row of the database
    closed: bool,  # noqa: FBT001
    maxsize: int | None,
    by_hand: int | None,
    is_over: int,
) -> LaneRow:
    """A queue as it is: a bound by hand beats the code, a negative one is none."""
    holds = maxsize if by_hand is None else by_hand
    return LaneRow(
        name=name,
        paused=paused,
        closed=closed,
        maxsize=None if holds is None or holds < 0 else holds,
        by_hand=by_hand is not None,
        is_over=is_over > 0,
    )


async def waiting_tasks(reading: Reading, namespace: str, limit: int) -> dict[str, int]:
    """An even share of every lane in which jobs wait, so that none hides the others."""
    rows = await reading.rows(READ_BUSY_LANES, *prefix_span(f"{namespace}:"))
    lanes = [row[0] for row in rows]
    if not lanes or limit <= 0:
        return {}
    share = max(1, limit // len(lanes))
    return dict(await reading.rows(READ_WAITING_TASKS, lanes[:limit], share))
