"""The whole suite on SQLite: `pytest tests/conformance -k "file and fence"`."""

import pytest

from durio.testing.conformance import SUITE, Promise, Subject, check


def told(promise: Promise) -> object:
    """A promise as a test, with the requirements it proves."""
    marks = [pytest.mark.proves(*promise.proves)] if promise.proves else []
    return pytest.param(promise, id=str(promise), marks=marks)


@pytest.mark.parametrize("promise", [told(promise) for promise in SUITE])
def test_promise(promise: Promise, subject: Subject) -> None:
    if lacking := promise.lacks(subject):
        pytest.skip(f"this store has no {', '.join(lacking)}")
    check(promise, subject)
