"""The whole suite on SQLite: `pytest tests/conformance -k "file and fence"`."""

import pytest

from tests.conformance import (
    SUITE,
    Promise,
    Subject,
    check,
    commit,
    logs,
    on_end,
    places,
    settle,
    transactions,
)
from tests.conformance.conftest import SUBJECTS

STDLIB_CHAPTERS = {"enqueue", "exchange", "outcomes", "upkeep", "store", "transactions"}
STDLIB_CHAPTERS |= {
    "records",
    "commit",
    "logs",
    "waits",
    "on_end",
    "gates",
    "places",
    "rates",
}


def promise_params() -> list[object]:
    """Every promise on every subject that can show it, with what it proves."""
    return [
        pytest.param(
            promise,
            name,
            id=f"{name}-{promise}",
            marks=[pytest.mark.proves(*promise.proves)] if promise.proves else [],
        )
        for promise in SUITE
        for name, subject in SUBJECTS.items()
        if not promise.lacks(subject) and is_selected(promise, name)
    ]


def is_selected(promise: Promise, subject: str) -> bool:
    """The second library runs the same SQL: what its driver could do otherwise."""
    return subject != "stdlib" or str(promise).split(".")[0] in STDLIB_CHAPTERS


@pytest.mark.parametrize(("promise", "subject"), promise_params(), indirect=["subject"])
def test_promise(promise: Promise, subject: Subject) -> None:
    check(promise, subject)


def test_only_memory_leaves_promises_out() -> None:
    """They need a second connection to the same data, which memory cannot have."""
    lacking = [
        (name, promise.name)
        for promise in SUITE
        for name, subject in SUBJECTS.items()
        if promise.lacks(subject)
    ]
    assert lacking == LEFT_OUT


LEFT_OUT = [
    ("memory", "a_death_on_this_host_is_seen_at_once"),
    *(
        ("memory", promise.name)
        for chapter in (
            commit.chapter,
            logs.chapter,
            settle.chapter,
            on_end.chapter,
            places.chapter,
        )
        for promise in chapter.promises
        if "has_transactions" in promise.needs
    ),
    *(("memory", promise.name) for promise in transactions.chapter.promises),
]
