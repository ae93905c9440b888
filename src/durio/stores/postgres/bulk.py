"""One verb for many jobs: counted first, then done in steps, each job at most once.

A mark says how far a count looked: the newest id, the moment, and how many jobs had ever
died. Waiting and running jobs are beyond it when they arrived later, dead ones when they
died later, so that a job that is sent back and dies again is not met twice. (One that only
comes back to a waiting state had arrived before: it is meant.)

Steps look for jobs in a snapshot of their own, through an index and so many rows at most,
and judge each again when the transaction that acts has hold of it.

Nobody waits for a job, or its key, that somebody else holds: it is passed over. A worker
holds one for a moment and then it runs, or waits as before. So all states are walked twice,
each in a step of its own: who has moved on, or is free again, is met then. What a transaction
holds all that time is left out, and told.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from durio.model.errors import InvalidOption
from durio.model.job import CANCELLED, DEAD, RUNNING
from durio.model.names import namespace_of
from durio.ports.browse import Query
from durio.ports.control import Acted, Counted, Verb
from durio.stores.postgres.audit import write_audit_line
from durio.stores.postgres.bounds import clear_soft_mark
from durio.stores.postgres.context import PostgresBulkPosition, WalkKey
from durio.stores.postgres.driver import Row
from durio.stores.postgres.filters import (
    DEAD_ROWS,
    ID_BYTES,
    JobSource,
    StatementValues,
    and_conditions,
    can_hold,
    error_contains,
    last_error,
    narrow_conditions,
    source_of_state,
    sources_of,
    states_of,
    wide_conditions,
)
from durio.stores.postgres.job_actions import (
    CHANGEABLE,
    act_on_jobs,
    find_jobs,
    is_changed,
)
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction, ReadTransaction

READ_MARK = statement("read_bulk_mark")

SCAN_MAX = 20_000  # rows of a table, per step
ERRORS_MAX = 1000  # errors read, per step


class PostgresBulkMark(NamedTuple):
    """How far a count looked."""

    id: bytes
    at: float
    deaths: int

    def __str__(self) -> str:
        return f"{self.id.hex()}:{self.at!r}:{self.deaths}"


class PostgresBulkBatch(NamedTuple):
    """Jobs to act on, and where the next look begins; None: there is no more."""

    found: list[tuple[bytes, int]]  # id, state
    next_position: PostgresBulkPosition | None
    is_second_pass: bool = False  # whether these were met before


class PostgresBulkResult(NamedTuple):
    """What a step did."""

    jobs: int
    audit_line: int | None  # of the audit
    held: int = 0  # that somebody else holds


def bulk_mark_from_text(text: str) -> PostgresBulkMark:
    """The mark that a count gave; text that we did not write is refused."""
    try:
        newest, at, deaths = text.split(":")
        mark = PostgresBulkMark(bytes.fromhex(newest), float(at), int(deaths))
    except ValueError:
        mark = PostgresBulkMark(b"", 0.0, 0)
    if len(mark.id) != ID_BYTES or not 0 <= mark.deaths < 2**63:
        raise InvalidOption(
            f"{text[:40]!r} is no mark", cure="Pass back what `count` gave."
        )
    return mark


# --- counting


async def count_jobs(reading: ReadTransaction, query: Query) -> Counted:
    """Number and mark are of the same moment: one snapshot."""
    newest, deaths = (await reading.rows(READ_MARK))[0]
    jobs, at = 0, await reading.now()
    for source in sources_of(query):
        if can_hold(source, query):
            counted, latest = await count_in(reading, query, source)
            jobs, at = jobs + counted, max(at, latest)
    return Counted(jobs, str(PostgresBulkMark(newest or bytes(ID_BYTES), at, deaths)))


async def count_in(
    reading: ReadTransaction, query: Query, source: JobSource
) -> tuple[int, float]:
    """How many fit, and the latest moment in them: a clock may have been ahead of ours.

    Deaths are numbered and need none: those who only ask for them do not pay.
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
    reading: ReadTransaction, query: Query, source: JobSource
) -> int:
    """Those whose newest error fits, read in turns."""
    jobs, after = 0, ()
    while after is not None:
        found, after = await find_in_source(
            reading, query, source, [], after, ERRORS_MAX
        )
        jobs += len(found)
    return jobs


# --- looking


def changeable_states(query: Query, verb: Verb) -> list[int]:
    """The states asked for in which the verb does something, in the order of the walk."""
    states = states_of(query)
    return [s for s in CHANGEABLE[verb] if states is None or s in states] * 2


async def find_batch(
    reading: ReadTransaction,
    query: Query,
    verb: Verb,
    mark: PostgresBulkMark,
    position: PostgresBulkPosition,
    limit: int,
) -> PostgresBulkBatch:
    """The next jobs that fit, state by state, as far as a bounded look goes.

    The next state is looked at when those of this one have been acted on.
    """
    states = changeable_states(query, verb)
    found: list[tuple[bytes, int]] = []
    nth, after = position
    while nth < len(states):
        state, source = states[nth], source_of_state(states[nth])
        then: WalkKey | None = None
        if can_hold(source, query):
            beyond = [(state, mark)]
            room = limit - len(found)
            ids, then = await find_in_source(
                reading, query, source, beyond, after, room
            )
            found += [(job_id, state) for job_id in ids]
        is_second = nth >= len(states) // 2
        if then is not None:
            return PostgresBulkBatch(found, PostgresBulkPosition(nth, then), is_second)
        nth, after = nth + 1, ()
        if found:
            then = PostgresBulkPosition(nth) if nth < len(states) else None
            return PostgresBulkBatch(found, then, is_second)
    return PostgresBulkBatch(found, None)


async def find_in_source(
    reading: ReadTransaction,
    query: Query,
    source: JobSource,
    beyond: Collection[tuple[int, PostgresBulkMark]],
    after: WalkKey,
    room: int,
) -> tuple[list[bytes], WalkKey | None]:
    """So many jobs of one source, by its index, from behind the last one met.

    Then where to go on; None: there was no more.
    """
    values = StatementValues()
    window = scan_window(query, source, after, values)
    wide = wide_conditions(query, source, values)
    for state, mark in beyond:
        wide += before_mark(mark, state, source, values)
    keys, order = ", ".join(source.columns), order_of(query, source)
    error = "null" if query.error is None else last_error(source)
    most = room if query.error is None else ERRORS_MAX
    rows = await reading.rows(
        f"""select t.id, {error}, {keys}
from (select t.* {window} limit {SCAN_MAX}) as t{source.joined}
where {and_conditions(wide)} order by {order} limit {most}""",  # noqa: S608 - ours
        *values.given,
    )
    found: list[bytes] = []
    folded = None if query.error is None else query.error.casefold()
    for job_id, said, *key in rows:
        if folded is None or error_contains(said, folded):
            found.append(job_id)
        if len(found) == room:
            return found, tuple(key)
    if len(rows) == most:
        return found, tuple(rows[-1][2:])
    return found, await scan_end(reading, query, source, after)


async def scan_end(
    reading: ReadTransaction, query: Query, source: JobSource, after: WalkKey
) -> WalkKey | None:
    """The end of a look that was cut short; None: there was no more."""
    values = StatementValues()
    window = scan_window(query, source, after, values)
    keys = ", ".join(source.columns)
    rows = await reading.rows(
        f"select {keys} {window} offset {SCAN_MAX - 1} limit 1", *values.given
    )
    return tuple(rows[0]) if rows else None


def scan_window(
    query: Query, source: JobSource, after: WalkKey, values: StatementValues
) -> str:
    """What is looked at, in the order of the index."""
    parts = narrow_conditions(query, source, values)
    keys = ", ".join(source.columns)
    if after:
        kinds = [kind for _, kind in source.order]
        places = [values.put(*one) for one in zip(after, kinds, strict=True)]
        parts.append(f"({keys}) > ({', '.join(places)})")
    order = order_of(query, source)
    return f"from {{schema}}.{source.table} as t where {and_conditions(parts)} order by {order}"


def order_of(query: Query, source: JobSource) -> str:
    """The order of the index; one queue needs none among queues, and a plan sees that."""
    is_one = source.has_lane and query.lane is not None
    return ", ".join(source.columns[1:] if is_one else source.columns)


def before_mark(
    mark: PostgresBulkMark, state: int, source: JobSource, values: StatementValues
) -> list[str]:
    """What had arrived, or died, when the count was made."""
    if state == DEAD:
        return [f"coalesce(t.died_no, 0) <= {values.put(mark.deaths, 'int8')}"]
    moment = "t.finished_at" if state == CANCELLED else f"{source.job}.created_at"
    parts = [
        f"t.id <= {values.put(mark.id, 'uuid')}",
        f"{moment} <= {values.put(mark.at, 'float8')}",
    ]
    return [*parts, "not t.cancel"] if state == RUNNING else parts  # asked already


# --- acting


class PostgresBulkRequest(NamedTuple):
    """What was asked for."""

    query: Query
    verb: Verb
    mark: PostgresBulkMark
    by: str


async def act_on_batch(
    tx: PostgresTransaction,
    request: PostgresBulkRequest,
    batch: PostgresBulkBatch,
    audit_line: int | None,
) -> PostgresBulkResult:
    """Act on those that still fit; those that are held are told the second time."""
    query, verb, mark, by = request
    other: set[bytes] = set()

    async def judge(state: int, ids: Collection[bytes]) -> set[bytes]:
        meant = await matching_jobs(tx, query, mark, state, ids)
        other.update(job_id for job_id in ids if job_id not in meant)
        return meant

    asked = dict(batch.found)
    places = await find_jobs(tx, list(asked))
    # One that has moved on to another state is met there.
    seen = [p for p in places.values() if p.state == asked[p.id]]
    changes = await act_on_jobs(tx, sorted(seen), verb, judge=judge)
    jobs = sum(
        is_changed(Acted(job_id, asked[job_id], after), verb)
        for job_id, after in changes.items()
    )
    if jobs:
        if verb == "cancel" and query.lane is not None:
            await clear_soft_mark(tx, query.lane)
        namespace = query.namespace or namespace_of(query.lane or "")
        target = query.in_words()
        audit_line = await write_audit_line(
            tx, namespace, by, verb, target, jobs, add_to_line=audit_line
        )
    left = [p.id for p in seen if p.id not in changes and p.id not in other]
    if not left or not batch.is_second_pass:
        return PostgresBulkResult(jobs, audit_line)
    now = (await find_jobs(tx, left)).values()
    return PostgresBulkResult(
        jobs, audit_line, held=sum(p.state == asked[p.id] for p in now)
    )


async def matching_jobs(
    tx: PostgresTransaction,
    query: Query,
    mark: PostgresBulkMark,
    state: int,
    ids: Collection[bytes],
) -> set[bytes]:
    """Which of these, all held by us, still are what was asked for."""
    source, values = source_of_state(state), StatementValues()
    if not can_hold(source, query):
        return set()
    parts = narrow_conditions(query, source, values)
    parts += wide_conditions(query, source, values)
    parts += before_mark(mark, state, source, values)
    parts.append(f"{source.job}.id = any({values.put(list(ids), 'uuid[]')})")
    error = "null" if query.error is None else last_error(source)
    rows: Any = await tx.rows(
        f"select t.id, {error} from {join_by_id(source)} where {and_conditions(parts)}",  # noqa: S608 - ours
        *values.given,
    )
    return {row[0] for row in rows if error_matches(query, row)}


def join_by_id(source: JobSource) -> str:
    """By id: a lane row is found through its job."""
    table = f"{{schema}}.{source.table} as t"
    if not source.is_lane:
        return table
    same = " and ".join(f"t.{name} = j.{name}" for name, _ in source.order)
    return f"{{schema}}.job as j join {table} on {same}"


def error_matches(query: Query, row: Row) -> bool:
    """Whether its newest error fits."""
    return query.error is None or error_contains(row[1], query.error.casefold())
