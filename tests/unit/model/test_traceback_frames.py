"""Frames are read back from the text of a traceback."""

from collections.abc import Callable

import pytest

from durio.model.failure import failure_of
from durio.model.retry import Retry, retry_in_words
from durio.model.traceback_frames import cause_of, frames_of


def outer() -> None:
    try:
        inner()
    except ValueError as error:
        raise LookupError("second") from error


def inner() -> None:
    raise ValueError("first")


def traceback_of(raising: Callable[[], None]) -> str:
    with pytest.raises(LookupError) as raised:
        raising()
    return failure_of(raised.value).traceback


def test_the_frames_of_the_last_exception_have_their_source() -> None:
    found = frames_of(traceback_of(outer))
    assert [frame.function for frame in found] == ["traceback_of", "outer"]
    assert found[1].code == 'raise LookupError("second") from error'
    assert found[1].own
    assert found[1].file.endswith("test_traceback_frames.py")


def test_frames_of_packages_and_hidden_ones_are_not_own() -> None:
    text = """Traceback (most recent call last):
  File "<hidden>", line 1, in 3 frames of durio
  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode
    obj, end = self.raw_decode(s, idx=_w(s, 0).end())
               ^^^^^^^^^^^^^^^
  File "/app/shop/mail.py", line 12, in send
ValueError: File "x", line 1
"""
    found = frames_of(text)
    assert [(frame.line, frame.own) for frame in found] == [
        (1, False),
        (337, False),
        (12, True),
    ]
    codes = [frame.code for frame in found]
    assert codes == [None, "obj, end = self.raw_decode(s, idx=_w(s, 0).end())", None]


def test_frames_in_a_group_of_exceptions_are_found() -> None:
    text = """  + Exception Group Traceback (most recent call last):
  |   File "/app/a.py", line 3, in main
  |     await group()
  | ExceptionGroup: two (2 sub-exceptions)
"""
    assert [frame.function for frame in frames_of(text)] == ["main"]
    assert frames_of(text)[0].code == "await group()"


def test_text_without_frames_has_none() -> None:
    assert frames_of("") == []
    assert frames_of("process was lost") == []


def test_a_retry_policy_in_words() -> None:
    assert retry_in_words(Retry(0)) == "no retries"
    assert retry_in_words(Retry(1, base=5, jitter=False)) == "1 retry, after 5 s"
    text = retry_in_words(Retry(8, base="10s", max_delay="1h"))
    assert text == "8 retries, after 10 s, 20 s, 40 s, ... at most 60 min, with jitter"


def test_the_cause_is_the_error_before() -> None:
    assert cause_of(traceback_of(outer)) == "ValueError: first"
    assert cause_of("Traceback (most recent call last):\nValueError: x") is None
    marker = "During handling of the above exception, another exception occurred:"
    assert cause_of(f"\n{marker}\nValueError: x") is None
