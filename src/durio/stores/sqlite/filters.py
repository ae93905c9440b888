"""A query as SQL: its conditions, and the index that leads to the jobs of one state.

Text in errors is compared by Python's `casefold`, which knows every alphabet; the database
calls it `folded`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from durio.model.job import DEAD, READY, RUNNING, SCHEDULED
from durio.ports.browse import Query

# `ValueError: no such order`, as people read and paste it; damaged errors say nothing.
LAST_ERROR = """iif(json_valid(errors),
  coalesce(json_extract(errors, '$[#-1].type'), '') || ': ' ||
  coalesce(json_extract(errors, '$[#-1].message'), ''), '')"""


class IndexWalk(NamedTuple):
    """How to go through the jobs of one state, in an order that can be taken up again."""

    source: str
    condition: str  # what the partial index needs to see
    order: tuple[str, ...]  # the columns of the index


WALKS = {
    SCHEDULED: IndexWalk(
        "job indexed by job_scheduled", "state = 0", ("queue", "run_at", "seq")
    ),
    READY: IndexWalk("job indexed by job_ready", "state = 2", ("queue", "rank", "seq")),
    RUNNING: IndexWalk("job indexed by job_running", "state = 3", ("worker", "seq")),
    # Without a word about the state: counting reads the index alone.
    DEAD: IndexWalk(
        "job indexed by job_dead", "died_at is not null", ("died_at", "queue", "seq")
    ),
}


def walk_of(state: int) -> IndexWalk:
    """The way through a state; one without an index is met by arrival."""
    return WALKS.get(state) or IndexWalk("job", f"state = {int(state)}", ("seq",))


def state_conditions(query: Query) -> tuple[str, list[Any]]:
    """The query whole, states included, for pages."""
    states = states_of(query)
    where, values = conditions(query, dead=states == (DEAD,))
    if states is None:
        return where, values
    # Numbers of ours, written out: a partial index needs to see them.
    named = [str(int(state)) for state in states]
    part = f"state = {named[0]}" if len(named) == 1 else one_of(named)
    if states == (DEAD,):
        part += " and died_at is not null"  # the condition of the index
    return f"{where} and {part}", values


def states_of(query: Query) -> tuple[int, ...] | None:
    """The states asked for; only running jobs have a worker."""
    if query.worker is None:
        return query.states
    return (RUNNING,) if query.states is None or RUNNING in query.states else ()


def conditions(query: Query, *, dead: bool) -> tuple[str, list[Any]]:
    """Everything but the states; the values travel apart."""
    parts: list[str] = []
    values: list[Any] = []
    if query.namespace is not None:
        parts.append("queue >= ? and queue < ?")
        values += prefix_span(f"{query.namespace}:")
    ended = "died_at" if dead else "finished_at"  # the same, but with an index
    for sql, value in (
        ("queue = ?", query.lane),
        ("task = ?", query.task),
        ("reason = ?", query.reason),
        (f"{ended} < ?", query.finished_before),
        (f"{ended} > ?", query.finished_after),
        ("worker = ?", query.worker),
    ):
        if value is not None:
            parts.append(sql)
            values.append(value)
    if query.error is not None:
        parts.append(f"instr(folded({LAST_ERROR}), ?) > 0")
        values.append(query.error.casefold())
    return "".join(f" and {part}" for part in parts), values


def one_of(named: Sequence[str]) -> str:
    """Any of several states; of none at all, nothing."""
    return f"state in ({', '.join(named)})"


def prefix_span(prefix: str) -> tuple[str, str]:
    """Everything that begins with a prefix lies between these two."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
