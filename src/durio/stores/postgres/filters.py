"""A query as SQL: which tables may hold its jobs, and under which conditions.

Every state has its table: waiting and running jobs have a lane row beside `job`, final ones
are in `kept` or `hist`. A *narrow* condition can use an index: it bounds how many rows are
read. A *wide* condition filters the rows that were read.

Text in errors is compared by Python's `casefold`, which knows every alphabet. How a database
compares letters depends on its settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING, SCHEDULED
from durio.model.names import namespace_span
from durio.ports.browse import Query
from durio.stores.postgres.death_counts import error_fields

LIVE = (SCHEDULED, READY, RUNNING)
FINAL = (DONE, DEAD, CANCELLED)
INT_MAX = 2**31 - 1
ID_BYTES = 16


@dataclass(slots=True)
class StatementValues:
    """The values of a statement; each is named by its number, and cast where it is used."""

    given: list[Any] = field(default_factory=list[Any])

    def put(self, value: Any, kind: str) -> str:
        """Add a value; return its name in the statement."""
        self.given.append(value)
        return f"${len(self.given)}::{kind}"


ID = ("id", "uuid")
LANE = ("lane", "text")
ENDED = ("finished_at", "float8")


class JobSource(NamedTuple):
    """A table with jobs of some states, and the order of one of its indexes.

    Its rows are `t`. A lane row is joined with its job, `j`.
    """

    table: str
    order: tuple[tuple[str, str], ...] = (ID,)  # columns and their types
    states: tuple[int, ...] = ()  # those of the query; empty: all that the table holds
    partial: str = ""  # the condition of a partial index with this order
    also: str = ""  # a further condition on its rows
    is_lane: bool = True

    @property
    def job(self) -> str:
        """The alias of the table with the job's own columns."""
        return "j" if self.is_lane else "t"

    @property
    def columns(self) -> list[str]:
        return [f"t.{name}" for name, _ in self.order]

    @property
    def joined(self) -> str:
        """The join of a lane row with its job."""
        return " join {schema}.job as j on j.id = t.id" if self.is_lane else ""

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


SCHEDULED_ROWS = JobSource("sched", (LANE, ("run_at", "float8"), ID))
READY_ROWS = JobSource("ready", (LANE, ("rank", "int2"), ID))
RUNNING_ROWS = JobSource("run")
DEAD_ROWS = JobSource("kept", (ENDED, LANE, ID), partial="t.state = 5", is_lane=False)
JOB_ROWS = JobSource("job", is_lane=False)
KEPT_ROWS = JobSource("kept", is_lane=False)
FINISHED_ROWS = JobSource("hist", is_lane=False)

# State -> the source that holds only its jobs, where there is one.
SOURCE_BY_STATE = {SCHEDULED: SCHEDULED_ROWS, READY: READY_ROWS, RUNNING: RUNNING_ROWS}
SOURCE_BY_STATE[DEAD] = DEAD_ROWS


def source_of_state(state: int) -> JobSource:
    """Return the source for jobs of one state that a manual action can change."""
    return SOURCE_BY_STATE.get(state) or KEPT_ROWS._replace(states=(state,))


def by_id(source: JobSource) -> JobSource:
    """Return the same jobs in the order of their ids, from a table that has others too."""
    if source.table == "kept":
        return KEPT_ROWS._replace(states=(DEAD,))
    if len(source.order) == 1:
        return source
    same = " and ".join(f"q.{name} = t.{name}" for name, _ in source.order)
    also = f"exists (select 1 from {{schema}}.{source.table} as q where {same})"  # noqa: S608 - ours
    return JOB_ROWS._replace(also=also)


def sources_of(query: Query) -> list[JobSource]:
    """Return every table that may hold jobs of this query; each job is in one of them."""
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
    """Whether the source can hold jobs of this query at all."""
    ends = (query.finished_before, query.finished_after) != (None, None)
    if (ends and not source.is_final_table) or not is_representable(query):
        return False
    return query.reason is None or source.table == "kept"  # no other table has a reason


def narrow_conditions(
    query: Query, source: JobSource, values: StatementValues
) -> list[str]:
    """Conditions that the index of the source can use."""
    parts = [source.partial] if source.partial else []
    if source.has_lane:
        parts += lane_conditions(query, values, "t.lane")
    if query.worker is not None and source.table == "run":
        parts.append(f"t.worker = {values.put(query.worker, 'int4')}")
    return parts + (end_conditions(query, values) if source.is_by_end_time else [])


def wide_conditions(
    query: Query, source: JobSource, values: StatementValues
) -> list[str]:
    """All other conditions, except on errors: Python compares those."""
    job = source.job
    parts = [source.also] if source.also else []
    if source.states:
        # Our own numbers, written out: a plan is made for all values of parameters.
        parts.append(f"t.state in ({', '.join(str(int(s)) for s in source.states)})")
    if not source.has_lane:
        parts += lane_conditions(query, values, f"{job}.lane")
    if query.task is not None:
        parts.append(f"{job}.task = {values.put(query.task, 'text')}")
    if query.reason is not None:
        parts.append(f"t.reason = {values.put(query.reason, 'text')}")
    if query.error:
        parts.append(f"{job}.errors is not null")
    return parts + ([] if source.is_by_end_time else end_conditions(query, values))


def is_representable(query: Query) -> bool:
    """Whether the database can store such names and numbers at all."""
    texts = (query.namespace, query.lane, query.task, query.reason)
    return all(text is None or is_storable(text) for text in texts) and (
        query.worker is None or 0 <= query.worker <= INT_MAX
    )


def is_storable(text: str) -> bool:
    """Whether it has no NUL and no lone surrogates."""
    return "\0" not in text and text == text.encode("utf-8", "replace").decode()


def lane_conditions(query: Query, values: StatementValues, lane: str) -> list[str]:
    """Conditions on namespace and queue."""
    parts: list[str] = []
    if query.namespace is not None:
        first, end = namespace_span(query.namespace)
        parts.append(f"{lane} >= {values.put(first, 'text')}")
        parts.append(f"{lane} < {values.put(end, 'text')}")
    if query.lane is not None:
        parts.append(f"{lane} = {values.put(query.lane, 'text')}")
    return parts


def end_conditions(query: Query, values: StatementValues) -> list[str]:
    ends = (("<", query.finished_before), (">", query.finished_after))
    return [
        f"t.finished_at {sign} {values.put(moment, 'float8')}"
        for sign, moment in ends
        if moment is not None
    ]


def and_conditions(parts: Sequence[str]) -> str:
    return " and ".join(parts) or "true"


# --- errors


def last_error(source: JobSource) -> str:
    """SQL for the newest error of a job, as it is stored."""
    return f"{source.job}.errors[cardinality({source.job}.errors)]"


def error_column(query: Query, source: JobSource) -> str:
    """The newest error, if the query asks for it."""
    return "null" if query.error is None else last_error(source)


def error_matches(query: Query, error: bytes | None) -> bool:
    """Whether the newest error of a job fits the query."""
    return query.error is None or error_contains(error, query.error.casefold())


def error_contains(error: bytes | None, folded: str) -> bool:
    """Whether the type or message of an error contains this text, in any case.

    They are joined as people read and paste them: `ValueError: no such order`.
    """
    fields = error_fields(error)
    if not fields and error is None:
        return not folded
    parts = (fields.get(name) for name in ("type", "message"))
    return (
        folded
        in ": ".join("" if part is None else str(part) for part in parts).casefold()
    )
