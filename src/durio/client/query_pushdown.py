"""Split a query of the language: what a store filters, and what is left for Python.

`id`, `created` and `age` become a range of ids, because ids begin with a time. `state` and
`queue` choose tables and lanes; one task, reason, error or worker is compared by the store.
A term that a store cannot judge exactly is left over.
"""

from collections.abc import Callable
from typing import NamedTuple

from durio.client.query_matching import SearchFacts, moment_span
from durio.model.ids import DIGITS
from durio.model.job import CANCELLED, DEAD, DONE, STATE_BY_CODE
from durio.model.names import lane, task_name
from durio.model.query_keys import QueryValue
from durio.model.query_language import JobSearchText, QueryTerm
from durio.ports.browse import Query

EVERY_STATE = range(len(STATE_BY_CODE))
ENDED = {DONE, DEAD, CANCELLED}
ID_BITS_BELOW_TIME = 80
MS_MAX = 2**48 - 1
SLACK_SECONDS = 0.002  # times are compared in milliseconds, and stored in seconds
WORKER_DIGITS_MAX = 9


class SplitQuery(NamedTuple):
    """What a store filters, and the terms that it does not judge."""

    query: Query
    rest: tuple[QueryTerm, ...]


def push_down(text: JobSearchText, query: Query, facts: SearchFacts) -> SplitQuery:
    """Narrow a query by the terms that a store can judge."""
    rest: list[QueryTerm] = []
    for term in text.terms:
        narrow = NARROWING.get(term.key.name) if term.key else None
        narrowed = None if narrow is None else narrow(query, term, facts)
        if narrowed is None:
            rest.append(term)
            continue
        query, is_judged = narrowed
        if not is_judged:
            rest.append(term)
    return SplitQuery(query, tuple(rest))


Narrowed = tuple[Query, bool] | None  # and whether the store judges the whole term


def narrow_states(query: Query, term: QueryTerm, facts: SearchFacts) -> Narrowed:
    del facts
    asked = {value.meaning for value in term.values}
    return with_states(
        query, set(EVERY_STATE) - asked if term.is_negated else asked
    ), True


def with_states(query: Query, states: set[int]) -> Query:
    known = EVERY_STATE if query.states is None else query.states
    return query._replace(states=tuple(sorted(states.intersection(known))))


def narrow_queue(query: Query, term: QueryTerm, facts: SearchFacts) -> Narrowed:
    queue = only_text(term)
    if queue is None or facts.app is None or query.lane is not None:
        return None
    return query._replace(lane=lane(facts.app, queue)), True


def narrow_task(query: Query, term: QueryTerm, facts: SearchFacts) -> Narrowed:
    task = only_text(term)
    if task is None or facts.app is None or query.task is not None:
        return None
    return query._replace(task=task_name(facts.app, task)), True


def narrow_reason(query: Query, term: QueryTerm, facts: SearchFacts) -> Narrowed:
    del facts
    reason = only_text(term)
    if reason is None or query.reason is not None:
        return None
    return query._replace(reason=reason), True


def narrow_error(query: Query, term: QueryTerm, facts: SearchFacts) -> Narrowed:
    del facts
    error = only_text(term)
    if error is None or query.error is not None:
        return None
    return query._replace(error=error), True


def narrow_worker(query: Query, term: QueryTerm, facts: SearchFacts) -> Narrowed:
    del facts
    worker = only_text(term)
    is_id = worker is not None and worker.isascii() and worker.isdigit()
    if not is_id or query.worker is not None or len(worker or "") > WORKER_DIGITS_MAX:
        return None
    return query._replace(worker=int(worker or 0)), True


def narrow_id(query: Query, term: QueryTerm, facts: SearchFacts) -> Narrowed:
    del facts
    value = only_value(term)
    if value is None:
        return None
    digits: str = value.meaning
    first, last = digits.ljust(DIGITS, "0"), digits.ljust(DIGITS, "f")
    return with_range(query, bytes.fromhex(first), bytes.fromhex(last)), True


def narrow_made(query: Query, term: QueryTerm, facts: SearchFacts) -> Narrowed:
    """Narrow by when the id was made."""
    value = only_value(term)
    if value is None:
        return None
    first, end = moment_span(value, facts.now_ms)
    if (first or 0) > MS_MAX or (end is not None and end <= 0):
        return query._replace(states=()), True
    return with_range(
        query,
        None if first is None else first_id_of(max(0, first)),
        None if end is None else last_id_of(min(end - 1, MS_MAX)),
    ), True


def with_range(query: Query, first: bytes | None, last: bytes | None) -> Query:
    """Return the query for the ids that are also in this range."""
    firsts = [each for each in (query.first_id, first) if each is not None]
    lasts = [each for each in (query.last_id, last) if each is not None]
    first, last = max(firsts, default=None), min(lasts, default=None)
    if first is not None and last is not None and first > last:
        return query._replace(states=())
    return query._replace(first_id=first, last_id=last)


def first_id_of(ms: int) -> bytes:
    return (ms << ID_BITS_BELOW_TIME).to_bytes(DIGITS // 2)


def last_id_of(ms: int) -> bytes:
    return ((ms + 1 << ID_BITS_BELOW_TIME) - 1).to_bytes(DIGITS // 2)


def narrow_finished(query: Query, term: QueryTerm, facts: SearchFacts) -> Narrowed:
    """Narrow to ended jobs, and by a little more than their time; Python judges it."""
    if term.is_negated:
        return None
    query = with_states(query, ENDED)
    value = only_value(term)
    if value is None:
        return query, False
    first, end = moment_span(value, facts.now_ms)
    after = [] if first is None else [first / 1000 - SLACK_SECONDS]
    before = [] if end is None else [end / 1000 + SLACK_SECONDS]
    after += [] if query.after is None else [query.after]
    before += [] if query.before is None else [query.before]
    return query._replace(
        after=max(after, default=None), before=min(before, default=None)
    ), False


def only_value(term: QueryTerm) -> QueryValue | None:
    """Return the one value that a job must have; None if there are more."""
    match term.values:
        case (value,) if not term.is_negated:
            return value
        case _:
            return None


def only_text(term: QueryTerm) -> str | None:
    """Return the one text that is meant exactly; None if there are more, or a prefix."""
    value = only_value(term)
    if value is None or value.is_prefix or not value.text:
        return None
    return value.text


NARROWING: dict[str, Callable[[Query, QueryTerm, SearchFacts], Narrowed]] = {
    "state": narrow_states,
    "queue": narrow_queue,
    "task": narrow_task,
    "reason": narrow_reason,
    "error": narrow_error,
    "worker": narrow_worker,
    "id": narrow_id,
    "created": narrow_made,
    "age": narrow_made,
    "finished": narrow_finished,
}
