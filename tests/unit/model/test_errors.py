"""Every error says what, with which values, and what to do, under a code of its own."""

import inspect

from durio.model import errors
from durio.model.errors import (
    Cancel,
    DurioError,
    InvariantBroken,
    JobDead,
    QueueClosed,
    QueueFull,
    RetryAfter,
    StoreError,
    StoreFull,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, DurioError)
]


def test_codes_are_unique_and_stable_words() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(code.islower() for code in codes)


def test_every_error_belongs_to_a_family() -> None:
    families = (errors.UsageError, errors.OperatingError, InvariantBroken)
    for kind in set(CLASSES) - {DurioError}:
        assert issubclass(kind, families), kind


def test_ours_are_shown_under_their_public_path_and_users_keep_theirs() -> None:
    class Mine(DurioError):
        code = "mine"

    class Stop(Cancel):
        pass

    assert {kind.__module__ for kind in (*CLASSES, Cancel)} == {"durio.errors"}
    assert {Mine.__module__, Stop.__module__} == {__name__}


def test_text_has_code_and_cure() -> None:
    assert str(DurioError("it broke")) == "it broke [durio]"
    told = DurioError("it broke", cure="Mend it.", job=1)
    assert str(told) == "it broke [durio]\n  Mend it."
    assert told.values == {"job": 1}


def test_some_carry_values_of_their_own() -> None:
    assert JobDead("dead", reason="exhausted", job_id="7").reason == "exhausted"
    assert StoreError("?", unknown=True).unknown
    assert not StoreFull("full", path="x").unknown
    cause = OSError()
    assert RetryAfter(2.0, cause).__cause__ is cause


def test_a_full_and_a_closed_queue_carry_their_values() -> None:
    full = QueueFull("full", queue="mail", depth=3, limit=3, retry_after=1.5)
    assert (full.queue, full.depth, full.limit) == ("mail", 3, 3)
    assert (full.retry_after, full.stored) == (1.5, 0)
    closed = QueueClosed("closed", cure="Wait.", queue="mail", stored=2)
    assert (closed.queue, closed.stored) == ("mail", 2)
    assert not isinstance(closed, QueueFull)
