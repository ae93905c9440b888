"""The whole suite on SQLite: `pytest tests/conformance -k "file and fence"`."""

import pytest

from durio.testing.conformance import SUITE, Promise, Subject, check
from tests.conformance.conftest import SUBJECTS


def told() -> list[object]:
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
        if not promise.lacks(subject)
    ]


@pytest.mark.parametrize(("promise", "subject"), told(), indirect=["subject"])
def test_promise(promise: Promise, subject: Subject) -> None:
    check(promise, subject)


def test_only_memory_leaves_promises_out() -> None:
    """Two need a second store on the same data, which memory cannot have."""
    lacking = [
        (name, promise.name)
        for promise in SUITE
        for name, subject in SUBJECTS.items()
        if promise.lacks(subject)
    ]
    assert lacking == LEFT_OUT


LEFT_OUT = [
    ("memory", "a_foreign_write_contests_a_lease"),
    ("memory", "a_death_on_this_host_is_seen_at_once"),
]
