"""Any exception becomes bounded, storable text; nothing here may fail."""

import pytest

from durio.model.failure import (
    LOG_LINES_MAX,
    MESSAGE_CHARS_MAX,
    TRACEBACK_CHARS_MAX,
    encode_failure,
    error_text,
    failure_of,
    failures,
    fold_stack,
    storable,
)


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


class Hostile(Exception):
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.proves("M81", "M89")
def test_a_failure_has_type_text_traceback_attempt_time_worker_and_logs() -> None:
    error = raised(ValueError("no such order"))
    error.__cause__ = raised(OSError("disk"))
    told = failure_of(error, attempt=2, at=5.0, worker="host/1", logs=["a", "b"])
    assert (told.type, told.message) == ("ValueError", "no such order")
    assert (told.attempt, told.at, told.worker) == (2, 5.0, "host/1")
    assert told.logs == ("a", "b")
    assert "OSError: disk" in told.traceback
    assert "in raised" in told.traceback


def test_it_is_stored_and_read_back() -> None:
    told = failure_of(raised(ValueError("x")))
    assert failures(b"[" + encode_failure(told) + b"]") == [told]
    assert failures(None) == []


def test_a_str_that_raises_anything_is_no_harm() -> None:
    assert error_text(Hostile()) == "<no message: __str__ raised SystemExit>"
    assert failure_of(raised(Hostile())).traceback


def test_a_traceback_that_cannot_be_made_is_told() -> None:
    class Broken(Exception):
        @property
        def __cause__(self) -> BaseException:
            raise MemoryError

    told = failure_of(Broken("x"))
    assert told.traceback == "<no traceback: MemoryError while formatting it>"


def test_all_text_is_bounded_and_storable() -> None:
    told = failure_of(
        raised(ValueError("\0\ud800" + "x" * 10**6)), logs=["y" * 9999] * 99
    )
    assert len(told.message) <= MESSAGE_CHARS_MAX
    assert told.message.startswith("\\0?x")
    assert told.message.endswith("...")
    assert "... cut ..." in told.traceback
    assert len(told.traceback) <= TRACEBACK_CHARS_MAX + 20
    assert len(told.logs) == LOG_LINES_MAX
    assert storable("abc", 3) == "abc"


def test_our_own_frames_are_left_out_but_never_all_of_them() -> None:
    ours = compile("raise KeyError('k')", "/ours/attempt.py", "exec")

    def inner() -> None:
        exec(ours)  # noqa: S102 - a frame in another file

    with pytest.raises(KeyError) as caught:
        inner()
    error = raised(ValueError("outer"))
    error.__context__ = caught.value
    told = failure_of(error, hidden="/ours/").traceback
    assert "attempt.py" not in told
    assert "in inner" in told
    assert "\n  ... and 1 frame of durio\nKeyError: 'k'\n" in told
    assert "in raised" in failure_of(error, hidden=__file__).traceback


def test_frames_in_groups_are_folded_too() -> None:
    ours = compile("raise KeyError('k')", "/ours/attempt.py", "exec")
    with pytest.raises(KeyError) as caught:
        exec(ours)  # noqa: S102 - a frame in another file
    group = raised(ExceptionGroup("both", [caught.value, ValueError("v")]))
    told = failure_of(group, hidden="/ours/").traceback
    assert "attempt.py" not in told
    assert "|   ... and 1 frame of durio" in told


STACK = """\
  File "/ours/cli.py", line 1, in main
    run()
  File "/library/asyncio/base.py", line 2, in run
    once()
  File "/shop/jobs.py", line 3, in send
    time.sleep(
    ^^^^^^^^^^^
  File "/ours/context.py", line 4, in progress
"""


def test_stack_begins_with_the_frames_of_the_user() -> None:
    assert fold_stack(STACK, ("/ours/", "/library/asyncio")) == (
        '  File "/shop/jobs.py", line 3, in send\n'
        "    time.sleep(\n    ^^^^^^^^^^^\n"
        "  ... and 3 frames of durio\n"
    )
    assert fold_stack(STACK, ("/none/",)) == STACK
    assert fold_stack(STACK, ("/",)) == STACK
    assert fold_stack("waits for a thread\n", ("/",)) == "waits for a thread\n"


def test_damaged_errors_are_told_and_hide_nothing_else() -> None:
    (damaged,) = failures(b"{broken")
    assert damaged.type == "Damaged"


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("unhandled errors in a TaskGroup", errors)


def test_a_group_is_its_first_error_and_the_number_of_others() -> None:
    lost = KeyError("lost")
    for error, text in (
        (group(ValueError("no such order")), "ValueError: no such order"),
        (group(ValueError("a"), lost), "ValueError: a (and 1 other error)"),
        (group(group(OSError("b"), lost), lost), "OSError: b (and 2 other errors)"),
    ):
        failure = failure_of(error)
        assert (failure.type, failure.message) == ("ExceptionGroup", text)
        assert "unhandled errors in a TaskGroup" in failure.traceback
