"""A query as SQL: which tables hold the jobs it may mean, and under which conditions.

Every state has its table: waiting and running jobs a lane row beside `job`, final ones
`kept` or `hist`. Conditions that an index can use are *narrow*: they bound what is looked
at. All others are *wide*: they judge what was looked at.

Text in errors is compared here, by Python's `casefold`, which knows every alphabet; what
a database makes of letters depends on how somebody once set it up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING, SCHEDULED
from durio.ports.browse import Query
from durio.stores.postgres.death_counts import error_fields

LIVE = (SCHEDULED, READY, RUNNING)
FINAL = (DONE, DEAD, CANCELLED)
INT_MAX = 2**31 - 1
ID_BYTES = 16


@dataclass(slots=True)
class StatementValues:
    """The values of a statement: each is named by its place, and cast where it stands."""

    given: list[Any] = field(default_factory=list[Any])

    def put(self, value: Any, kind: str) -> str:
        """Add one; how the statement names it."""
        self.given.append(value)
        return f"${len(self.given)}::{kind}"


ID = ("id", "uuid")
LANE = ("lane", "text")
ENDED = ("finished_at", "float8")


class JobSource(NamedTuple):
    """A table with jobs of some states, and an order in which an index leads through it.

    Its rows are `t`; those of lanes have their job beside them, as `j`.
    """

    table: str
    order: tuple[tuple[str, str], ...] = (ID,)  # columns and their types
    states: tuple[int, ...] = ()  # those asked for; none: all that the table holds
    partial: str = ""  # the condition of a partial index that leads there
    also: str = ""  # what else makes a row one of these
    is_lane: bool = True

    @property
    def job(self) -> str:
        """Whose columns are the job's own."""
        return "j" if self.is_lane else "t"

    @property
    def columns(self) -> list[str]:
        """The columns of the order."""
        return [f"t.{name}" for name, _ in self.order]

    @property
    def joined(self) -> str:
        """The job beside its lane row."""
        return " join {schema}.job as j on j.id = t.id" if self.is_lane else ""

    @property
    def has_lane(self) -> bool:
        """Whether its index begins with the queue."""
        return self.order[0] == LANE

    @property
    def is_by_end_time(self) -> bool:
        """Whether its index begins with the end of jobs."""
        return self.order[0] == ENDED

    @property
    def is_final_table(self) -> bool:
        """Whether its jobs are over."""
        return self.table in ("kept", "hist")


SCHEDULED_ROWS = JobSource("sched", (LANE, ("run_at", "float8"), ID))
READY_ROWS = JobSource("ready", (LANE, ("rank", "int2"), ID))
RUNNING_ROWS = JobSource("run")
DEAD_ROWS = JobSource("kept", (ENDED, LANE, ID), partial="t.state = 5", is_lane=False)
JOB_ROWS = JobSource("job", is_lane=False)
KEPT_ROWS = JobSource("kept", is_lane=False)
FINISHED_ROWS = JobSource("hist", is_lane=False)

# State -> the way through its jobs that looks at no others, where there is one.
SOURCE_BY_STATE = {SCHEDULED: SCHEDULED_ROWS, READY: READY_ROWS, RUNNING: RUNNING_ROWS}
SOURCE_BY_STATE[DEAD] = DEAD_ROWS


def source_of_state(state: int) -> JobSource:
    """The way through the jobs of one state that a hand can change."""
    return SOURCE_BY_STATE.get(state) or KEPT_ROWS._replace(states=(state,))


def by_id(source: JobSource) -> JobSource:
    """The same jobs in the order of their ids, met among others."""
    if source.table == "kept":
        return KEPT_ROWS._replace(states=(DEAD,))
    if len(source.order) == 1:
        return source
    same = " and ".join(f"q.{name} = t.{name}" for name, _ in source.order)
    also = f"exists (select 1 from {{schema}}.{source.table} as q where {same})"  # noqa: S608 - ours
    return JOB_ROWS._replace(also=also)


def states_of(query: Query) -> tuple[int, ...] | None:
    """The states asked for; only running jobs have a worker."""
    if query.worker is None:
        return query.states
    return (RUNNING,) if query.states is None or RUNNING in query.states else ()


def sources_of(query: Query) -> list[JobSource]:
    """Every table that may hold jobs of this query, each job in one of them."""
    states = states_of(query)
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
    """Whether jobs of this query can be there at all."""
    ends = (query.finished_before, query.finished_after) != (None, None)
    if (ends and not source.is_final_table) or not is_representable(query):
        return False
    return query.reason is None or source.table == "kept"  # nothing else says why


def narrow_conditions(
    query: Query, source: JobSource, values: StatementValues
) -> list[str]:
    """What an index of the source can use."""
    parts = [source.partial] if source.partial else []
    if source.has_lane:
        parts += lane_conditions(query, values, "t.lane")
    if query.worker is not None and source.table == "run":
        parts.append(f"t.worker = {values.put(query.worker, 'int4')}")
    return parts + (end_conditions(query, values) if source.is_by_end_time else [])


def wide_conditions(
    query: Query, source: JobSource, values: StatementValues
) -> list[str]:
    """Everything else but errors, which Python judges."""
    job = source.job
    parts = [source.also] if source.also else []
    if source.states:
        # Numbers of ours, written out: a plan is made for all values.
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
    """Whether the database could hold such names and numbers at all."""
    texts = (query.namespace, query.lane, query.task, query.reason)
    return all(text is None or is_storable(text) for text in texts) and (
        query.worker is None or 0 <= query.worker <= INT_MAX
    )


def is_storable(text: str) -> bool:
    """No NUL, no half characters."""
    return "\0" not in text and text == text.encode("utf-8", "replace").decode()


def lane_conditions(query: Query, values: StatementValues, lane: str) -> list[str]:
    """Whose queues, and which of them."""
    parts: list[str] = []
    if query.namespace is not None:
        first, end = prefix_span(f"{query.namespace}:")
        parts.append(f"{lane} >= {values.put(first, 'text')}")
        parts.append(f"{lane} < {values.put(end, 'text')}")
    if query.lane is not None:
        parts.append(f"{lane} = {values.put(query.lane, 'text')}")
    return parts


def end_conditions(query: Query, values: StatementValues) -> list[str]:
    """When it ended."""
    ends = (("<", query.finished_before), (">", query.finished_after))
    return [
        f"t.finished_at {sign} {values.put(moment, 'float8')}"
        for sign, moment in ends
        if moment is not None
    ]


def prefix_span(prefix: str) -> tuple[str, str]:
    """Everything that begins with a prefix lies between these two."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def and_conditions(parts: Sequence[str]) -> str:
    """Conditions as SQL has them after `where`."""
    return " and ".join(parts) or "true"


# --- errors


def last_error(source: JobSource) -> str:
    """The newest error of a job, as it is stored."""
    return f"{source.job}.errors[cardinality({source.job}.errors)]"


def error_contains(error: bytes | None, folded: str) -> bool:
    """Whether the type or message of an error has this text, in whatever case.

    As people read and paste it: `ValueError: no such order`.
    """
    fields = error_fields(error)
    if not fields and error is None:
        return not folded
    parts = (fields.get(name) for name in ("type", "message"))
    return (
        folded
        in ": ".join("" if part is None else str(part) for part in parts).casefold()
    )
