"""Translate a query into SQL: its conditions, and the index for the jobs of one state.

Text in errors is compared with Python's `casefold`, which handles every alphabet. In SQL
the function is called `folded`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from durio.model.codec import json_text
from durio.model.job import BLOCKED, DEAD, READY, RUNNING, SCHEDULED
from durio.model.names import namespace_span
from durio.ports.browse import Query

# `ValueError: no such order`, in the form that logs show; empty if errors are not JSON.
LAST_ERROR = """iif(json_valid(errors),
  coalesce(json_extract(errors, '$[#-1].type'), '') || ': ' ||
  coalesce(json_extract(errors, '$[#-1].message'), ''), '')"""


class IndexWalk(NamedTuple):
    """How to read the jobs of one state in an order that a later call can continue."""

    source: str
    condition: str  # SQLite uses a partial index only with its condition
    order: tuple[str, ...]  # the columns of the index


IN_GATED = (
    "(select job.* from gated cross join job using (seq) where gated.{} is not null)"
)
WALKS: dict[int, tuple[IndexWalk, ...]] = {
    SCHEDULED: (
        IndexWalk(
            "job indexed by job_scheduled", "state = 0", ("queue", "run_at", "seq")
        ),
    ),
    # The table `waits` has the jobs that wait for logs, `gated` those before gates.
    BLOCKED: (
        IndexWalk(
            "(select job.* from waits cross join job using (seq))",
            "state = 1",
            ("seq",),
        ),
        IndexWalk(IN_GATED.format("gate"), "state = 1", ("seq",)),
    ),
    # First those that have passed gates: one that is released joins the others.
    READY: (
        IndexWalk(IN_GATED.format("newest"), "state = 1", ("seq",)),
        IndexWalk("job indexed by job_ready", "state = 2", ("queue", "rank", "seq")),
    ),
    RUNNING: (IndexWalk("job indexed by job_running", "state = 3", ("worker", "seq")),),
    # No condition on the state, so that counting reads only the index.
    DEAD: (
        IndexWalk(
            "job indexed by job_dead",
            "died_at is not null",
            ("died_at", "queue", "seq"),
        ),
    ),
}


def walks_of(state: int) -> tuple[IndexWalk, ...]:
    """Return how to read the jobs of a state, part by part.

    A state without an index is read by arrival.
    """
    return WALKS.get(state) or (IndexWalk("job", f"state = {int(state)}", ("seq",)),)


def state_conditions(query: Query) -> tuple[str, list[Any]]:
    """Return the conditions for pages; a single state is that of the source."""
    states = query.possible_states
    where, values = conditions(query, dead=states == (DEAD,))
    if states is None:
        return where, values
    if len(states) == 1:
        return where, values  # the source says which
    return f"{where} and {one_of(states)}", values


def conditions(query: Query, *, dead: bool) -> tuple[str, list[Any]]:
    """Return all conditions but the states, and their values."""
    parts: list[str] = []
    values: list[Any] = []
    if query.namespace is not None:
        parts.append("queue >= ? and queue < ?")
        values += namespace_span(query.namespace)
    # A dead job has the same time in both columns, and an index on this one.
    dated = "died_at" if dead else "coalesce(finished_at, created_at)"
    ids = None if query.ids is None else json_text([each.hex() for each in query.ids])
    for sql, value in (
        ("queue = ?", query.lane),
        ("task = ?", query.task),
        ("reason = ?", query.reason),
        (f"{dated} < ?", query.before),
        (f"{dated} > ?", query.after),
        ("worker = ?", query.worker),
        ("id in (select unhex(value) from json_each(?))", ids),
        ("id >= ?", query.first_id),
        ("id <= ?", query.last_id),
    ):
        if value is not None:
            parts.append(sql)
            values.append(value)
    if query.error is not None:
        parts.append(f"instr(folded({LAST_ERROR}), ?) > 0")
        values.append(query.error.casefold())
    return "".join(f" and {part}" for part in parts), values


PASSED = "exists (select 1 from gated where gated.seq = job.seq and newest is not null)"


def one_of(states: Sequence[int]) -> str:
    """Return the condition for any of several states; without states, for no job.

    A ready job that has passed gates is stored as blocked.
    """
    # Literals, not parameters: SQLite must see the values to use a partial index.
    part = f"state in ({', '.join(str(int(state)) for state in states)})"
    if (READY in states) is (BLOCKED in states):
        return part
    if READY in states:
        return f"({part} or (state = 1 and {PASSED}))"
    return f"({part} and not (state = 1 and {PASSED}))"
