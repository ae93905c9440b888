"""Translate a query into SQL: the tables that may hold its jobs, and its conditions.

Every state has its table. Waiting and running jobs have a lane row beside `job`; final ones
are in `kept` or `hist`. A *narrow* condition can use an index and so limits how many rows
are read. A *wide* condition filters the rows that were read.

Text in errors is compared with Python's `casefold`, which handles every alphabet. How a
database compares letters depends on its settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from durio.model.job import BLOCKED, CANCELLED, DEAD, DONE, READY, RUNNING, SCHEDULED
from durio.model.names import namespace_span
from durio.ports.browse import Query
from durio.ports.records import is_storable
from durio.stores.postgres.death_counts import error_fields

LIVE = (SCHEDULED, BLOCKED, READY, RUNNING)
FINAL = (DONE, DEAD, CANCELLED)
INT_MAX = 2**31 - 1
ID_BYTES = 16


@dataclass(slots=True)
class StatementValues:
    """Parameters of a statement; each one is numbered, and cast where it is used."""

    given: list[Any] = field(default_factory=list[Any])

    def put(self, value: Any, kind: str) -> str:
        """Add a value; return its placeholder for the statement."""
        self.given.append(value)
        return f"${len(self.given)}::{kind}"


ID = ("id", "uuid")
LANE = ("lane", "text")
ENDED = ("finished_at", "float8")


class JobSource(NamedTuple):
    """A table with jobs of some states, and the order of one of its indexes.

    The table has the alias `t`. A lane row is joined with its job, which has the alias `j`.
    """

    table: str
    order: tuple[tuple[str, str], ...] = (ID,)  # columns and their types
    states: tuple[int, ...] = ()  # states to filter by; empty: no filter
    partial: str = ""  # which rows of the table; for `kept`, of a partial index
    also: str = ""  # a further condition on its rows
    is_lane: bool = True

    @property
    def job(self) -> str:
        """Return the alias of the table that has the job's own columns."""
        return "j" if self.is_lane else "t"

    @property
    def columns(self) -> list[str]:
        return [f"t.{name}" for name, _ in self.order]

    @property
    def joined(self) -> str:
        """Return the SQL that joins a lane row with its job."""
        return f" join {{schema}}.job as j on j.id = {self.id}" if self.is_lane else ""

    @property
    def id(self) -> str:
        """Return the SQL of the job's id; a row of `ready` may have a ticket as its id."""
        return "coalesce(t.job, t.id)" if self.table == "ready" else "t.id"

    @property
    def has_lane(self) -> bool:
        """Whether its index begins with the lane."""
        return self.order[0] == LANE

    @property
    def is_by_end_time(self) -> bool:
        """Whether its index begins with `finished_at`."""
        return self.order[0] == ENDED

    @property
    def is_final_table(self) -> bool:
        return self.table in ("kept", "hist")


SCHEDULED_ROWS = JobSource(
    "sched", (LANE, ("run_at", "float8"), ID), partial="t.run_at < 'infinity'"
)
# Blocked jobs are due at infinity. The index has them in this order.
BLOCKED_ROWS = JobSource("sched", (LANE, ID), partial="t.run_at = 'infinity'")
READY_ROWS = JobSource("ready", (LANE, ("rank", "int2"), ID))
RUNNING_ROWS = JobSource("run")
DEAD_ROWS = JobSource("kept", (ENDED, LANE, ID), partial="t.state = 5", is_lane=False)
JOB_ROWS = JobSource("job", is_lane=False)
KEPT_ROWS = JobSource("kept", is_lane=False)
FINISHED_ROWS = JobSource("hist", is_lane=False)

# For each state that has one: the source that holds only jobs of this state.
SOURCE_BY_STATE = {
    SCHEDULED: SCHEDULED_ROWS,
    BLOCKED: BLOCKED_ROWS,
    READY: READY_ROWS,
    RUNNING: RUNNING_ROWS,
    DEAD: DEAD_ROWS,
}


def source_of_state(state: int) -> JobSource:
    """Return the source for jobs of one state that a manual action can change."""
    return SOURCE_BY_STATE.get(state) or KEPT_ROWS._replace(states=(state,))


def place_of(job_id: str) -> str:
    """Return the SQL of the place in `ready` of a job: a ticket, or its id."""
    ticket = f"select k.id from {{schema}}.ready as k where k.job = {job_id}"  # noqa: S608 - ours
    return f"coalesce(({ticket}), {job_id})"


def by_id(source: JobSource) -> JobSource:
    """Return a source with the same jobs, ordered by id; its table also holds other jobs."""
    if source.table == "kept":
        return KEPT_ROWS._replace(states=(DEAD,))
    if len(source.order) == 1:
        return source
    same = " and ".join(f"q.{name} = t.{name}" for name, _ in source.order)
    if source.table == "ready":
        same = same.replace("q.id = t.id", f"q.id = {place_of('t.id')}")
    if source.partial:
        same += f" and {source.partial.replace('t.', 'q.')}"
    also = f"exists (select 1 from {{schema}}.{source.table} as q where {same})"  # noqa: S608 - ours
    return JOB_ROWS._replace(also=also)


def sources_of(query: Query) -> list[JobSource]:
    """Return every source that may hold jobs of this query; each job is in one only."""
    states = query.possible_states
    if states is None:
        return [JOB_ROWS, KEPT_ROWS, FINISHED_ROWS]
    asked = set(states)
    if asked >= {*LIVE}:
        sources = [JOB_ROWS]
    else:
        sources = [SOURCE_BY_STATE[state] for state in LIVE if state in asked]
    final = tuple(state for state in FINAL if state in asked)
    if final == (DEAD,):
        sources.append(DEAD_ROWS)
    elif final:
        sources.append(
            KEPT_ROWS if final == FINAL else KEPT_ROWS._replace(states=final)
        )
    return [*sources, FINISHED_ROWS] if DONE in asked else sources


# --- conditions


def can_hold(source: JobSource, query: Query) -> bool:
    """Whether the source can hold any job that matches the query."""
    # Only one table has a reason.
    return is_representable(query) and (query.reason is None or source.table == "kept")


def narrow_conditions(
    query: Query, source: JobSource, values: StatementValues
) -> list[str]:
    """Return the conditions that the source's index can use."""
    parts = [source.partial] if source.partial else []
    if source.has_lane:
        parts += lane_conditions(query, values, "t.lane")
    if query.worker is not None and source.table == "run":
        parts.append(f"t.worker = {values.put(query.worker, 'int4')}")
    if query.ids is not None:
        parts.append(f"{source.id} = any({values.put(list(query.ids), 'uuid[]')})")
    parts += [
        f"{source.id} {sign} {values.put(limit, 'uuid')}"
        for sign, limit in ((">=", query.first_id), ("<=", query.last_id))
        if limit is not None
    ]
    return parts + (
        age_conditions(query, source, values) if source.is_by_end_time else []
    )


def wide_conditions(
    query: Query, source: JobSource, values: StatementValues
) -> list[str]:
    """Return all other conditions, except on error texts, which Python compares."""
    job = source.job
    parts = [source.also] if source.also else []
    if source.states:
        # Literals, not parameters: a prepared plan has to work for every value of a
        # parameter.
        parts.append(f"t.state in ({', '.join(str(int(s)) for s in source.states)})")
    if not source.has_lane:
        parts += lane_conditions(query, values, f"{job}.lane")
    if query.task is not None:
        parts.append(f"{job}.task = {values.put(query.task, 'text')}")
    if query.reason is not None:
        parts.append(f"t.reason = {values.put(query.reason, 'text')}")
    if query.error:
        parts.append(f"{job}.errors is not null")
    return parts + (
        [] if source.is_by_end_time else age_conditions(query, source, values)
    )


def is_representable(query: Query) -> bool:
    """Whether the database can store the names and numbers of the query."""
    texts = (query.namespace, query.lane, query.task, query.reason)
    return is_storable(*(text for text in texts if text is not None)) and (
        query.worker is None or 0 <= query.worker <= INT_MAX
    )


def lane_conditions(query: Query, values: StatementValues, lane: str) -> list[str]:
    """Return the conditions on namespace and queue."""
    parts: list[str] = []
    if query.namespace is not None:
        first, end = namespace_span(query.namespace)
        parts.append(f"{lane} >= {values.put(first, 'text')}")
        parts.append(f"{lane} < {values.put(end, 'text')}")
    if query.lane is not None:
        parts.append(f"{lane} = {values.put(query.lane, 'text')}")
    return parts


def age_conditions(
    query: Query, source: JobSource, values: StatementValues
) -> list[str]:
    """Return conditions on the end of ended jobs and on the creation of others."""
    moment = "t.finished_at" if source.is_final_table else f"{source.job}.created_at"
    return [
        f"{moment} {sign} {values.put(limit, 'float8')}"
        for sign, limit in (("<", query.before), (">", query.after))
        if limit is not None
    ]


def and_conditions(parts: Sequence[str]) -> str:
    return " and ".join(parts) or "true"


# --- errors


def last_error(source: JobSource) -> str:
    """Return the SQL for a job's newest error, as it is stored."""
    return f"{source.job}.errors[cardinality({source.job}.errors)]"


def error_column(query: Query, source: JobSource) -> str:
    """Return the column of the newest error, or null if the query does not filter errors."""
    return "null" if query.error is None else last_error(source)


def error_matches(query: Query, error: bytes | None) -> bool:
    """Whether the newest error of a job matches the query."""
    return query.error is None or error_contains(error, query.error.casefold())


def error_contains(error: bytes | None, folded: str) -> bool:
    """Whether an error's type or message contains this text; case is ignored.

    Both are searched as one text, in the form that logs show: `ValueError: no such order`.
    """
    fields = error_fields(error)
    if not fields and error is None:
        return not folded
    parts = (fields.get(name) for name in ("type", "message"))
    return (
        folded
        in ": ".join("" if part is None else str(part) for part in parts).casefold()
    )
