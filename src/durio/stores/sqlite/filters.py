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


WALKS = {
    SCHEDULED: IndexWalk(
        "job indexed by job_scheduled", "state = 0", ("queue", "run_at", "seq")
    ),
    # The table `waits` has the blocked jobs.
    BLOCKED: IndexWalk(
        "(select job.* from waits cross join job using (seq))", "state = 1", ("seq",)
    ),
    READY: IndexWalk("job indexed by job_ready", "state = 2", ("queue", "rank", "seq")),
    RUNNING: IndexWalk("job indexed by job_running", "state = 3", ("worker", "seq")),
    # No condition on the state, so that counting reads only the index.
    DEAD: IndexWalk(
        "job indexed by job_dead", "died_at is not null", ("died_at", "queue", "seq")
    ),
}


def walk_of(state: int) -> IndexWalk:
    """Return the index of a state; a state without an index is read by arrival."""
    return WALKS.get(state) or IndexWalk("job", f"state = {int(state)}", ("seq",))


def state_conditions(query: Query) -> tuple[str, list[Any]]:
    """Return all conditions, states included, for pages."""
    states = query.possible_states
    where, values = conditions(query, dead=states == (DEAD,))
    if states is None:
        return where, values
    # Literals, not parameters: SQLite must see the values to use a partial index.
    named = [str(int(state)) for state in states]
    part = f"state = {named[0]}" if len(named) == 1 else one_of(named)
    if states == (DEAD,):
        part += " and died_at is not null"  # the condition of the index
    return f"{where} and {part}", values


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
    ):
        if value is not None:
            parts.append(sql)
            values.append(value)
    if query.error is not None:
        parts.append(f"instr(folded({LAST_ERROR}), ?) > 0")
        values.append(query.error.casefold())
    return "".join(f" and {part}" for part in parts), values


def one_of(named: Sequence[str]) -> str:
    """Return the condition for any of several states; without states, for no job."""
    return f"state in ({', '.join(named)})"
