"""Queries as SQL: which tables are asked, by which index, and what Python judges."""

import pytest

from durio.model.job import BLOCKED, CANCELLED, DEAD, DONE, READY, RUNNING, SCHEDULED
from durio.model.names import namespace_span
from durio.ports.browse import Query
from durio.stores.postgres.filters import (
    BLOCKED_ROWS,
    DEAD_ROWS,
    FINISHED_ROWS,
    JOB_ROWS,
    KEPT_ROWS,
    READY_ROWS,
    RUNNING_ROWS,
    SCHEDULED_ROWS,
    JobSource,
    StatementValues,
    by_id,
    can_hold,
    error_contains,
    narrow_conditions,
    source_of_state,
    sources_of,
    wide_conditions,
)

SOURCES = {
    "every state": (Query(), [JOB_ROWS, KEPT_ROWS, FINISHED_ROWS]),
    "no state": (Query(states=()), []),
    "ready": (Query(states=(READY,)), [READY_ROWS]),
    "waiting": (Query(states=(READY, SCHEDULED)), [SCHEDULED_ROWS, READY_ROWS]),
    "live": (Query(states=(SCHEDULED, BLOCKED, READY, RUNNING)), [JOB_ROWS]),
    "blocked": (Query(states=(BLOCKED,)), [BLOCKED_ROWS]),
    "dead": (Query(states=(DEAD,)), [DEAD_ROWS]),
    "done": (
        Query(states=(DONE,)),
        [KEPT_ROWS._replace(states=(DONE,)), FINISHED_ROWS],
    ),
    "over": (Query(states=(CANCELLED, DONE, DEAD)), [KEPT_ROWS, FINISHED_ROWS]),
    "dead and cancelled": (
        Query(states=(CANCELLED, DEAD)),
        [KEPT_ROWS._replace(states=(DEAD, CANCELLED))],
    ),
    "under a worker": (Query(worker=7), [RUNNING_ROWS]),
    "dead under a worker": (Query(worker=7, states=(DEAD,)), []),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_query_asks_the_tables_that_may_hold_its_jobs(name: str) -> None:
    query, wanted = SOURCES[name]
    assert sources_of(query) == wanted


IMPOSSIBLE = {
    "a reason of a live job": (JOB_ROWS, Query(reason="exhausted")),
    "a reason of a done job": (FINISHED_ROWS, Query(reason="exhausted")),
    "a task with NUL": (KEPT_ROWS, Query(task="a\0b")),
    "a queue with half a character": (KEPT_ROWS, Query(lane="shop:\udc80")),
    "a worker that no number names": (RUNNING_ROWS, Query(worker=2**40)),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_there_is_not_asked_for(name: str) -> None:
    source, query = IMPOSSIBLE[name]
    assert not can_hold(source, query)


def test_every_value_travels_apart_and_is_cast_where_it_stands() -> None:
    """Narrow first, then wide: places and values agree."""
    hostile = "'; drop table job; --"
    query = Query("shop", lane=hostile, task=hostile, reason=hostile, error="x")
    query = query._replace(before=2.0, after=1.0, ids=(b"x" * 16,))
    for source in (DEAD_ROWS, KEPT_ROWS, READY_ROWS):
        values = StatementValues()
        parts = narrow_conditions(query, source, values)
        parts += wide_conditions(query, source, values)
        text = " and ".join(parts)
        assert "drop" not in text
        places = [f"${n}::" for n in range(1, len(values.given) + 1)]
        assert all(text.count(place) == 1 for place in places)
        assert sorted(map(str, values.given)) == sorted(
            ["shop:", "shop;", *[hostile] * 3, "2.0", "1.0", str([b"x" * 16])]
        )


LEADS = {
    "a lane by its queue": (READY_ROWS, Query(lane="shop:mail"), 1),
    "a lane by its namespace": (READY_ROWS, Query("shop"), 2),
    "blocked jobs by their due time": (BLOCKED_ROWS, Query("shop"), 3),
    "running jobs by their worker": (RUNNING_ROWS, Query(worker=3), 1),
    "running jobs not by their queue": (RUNNING_ROWS, Query(lane="shop:mail"), 0),
    "any job by its id": (READY_ROWS, Query(ids=(b"x" * 16,)), 1),
    "the dead by their end": (DEAD_ROWS, Query(before=1.0), 2),
    "history by nothing but ids": (FINISHED_ROWS, Query("shop", task="shop.pay"), 0),
}


@pytest.mark.parametrize("name", LEADS)
def test_only_what_an_index_has_bounds_a_look(name: str) -> None:
    source, query, narrow = LEADS[name]
    assert len(narrow_conditions(query, source, StatementValues())) == narrow


@pytest.mark.parametrize(
    "source", [READY_ROWS, SCHEDULED_ROWS, BLOCKED_ROWS, RUNNING_ROWS, DEAD_ROWS]
)
def test_every_source_can_be_walked_by_id(source: JobSource) -> None:
    assert len(by_id(source).order) == 1


@pytest.mark.parametrize("state", [SCHEDULED, BLOCKED, READY, RUNNING, DEAD, CANCELLED])
def test_a_walk_can_be_taken_up_again(state: int) -> None:
    """No two jobs of a state stand at the same place of its order."""
    assert source_of_state(state).columns[-1] == "t.id"


SAID = {
    "the type": (b'{"type":"ValueError","message":"no"}', "valueerror", True),
    "the message": (b'{"type":"E","message":"No Such"}', "no such", True),
    "both as people read them": (b'{"type":"E","message":"m"}', "e: m", True),
    "every alphabet": (b'{"type":"E","message":"STRASSE"}', "straße", True),
    "not the traceback": (b'{"type":"E","traceback":"deep"}', "deep", False),
    "numbers": (b'{"type":"E","message":404}', "404", True),
    "no wildcard": (b'{"type":"E","message":"100x"}', "100%", False),
    "damage": (b"{broken", "broken", False),
    "a list": (b'["deep"]', "deep", False),
    "bytes that are no text": (b'{"type":"\xff"}', "\xff", False),
    "no error": (None, "e", False),
    "nothing at all": (None, "", True),
}


@pytest.mark.parametrize("name", SAID)
def test_errors_are_compared_in_whatever_case(name: str) -> None:
    error, text, wanted = SAID[name]
    assert error_contains(error, text.casefold()) is wanted


def test_a_namespace_is_a_span() -> None:
    first, end = namespace_span("shop")
    assert first <= "shop:default" < end
    for other in ("shop", "shop-eu:default", "shop2:default", "shoq:a"):
        assert not first <= other < end
