"""Convert an exception to data: type, message and traceback as limited, storable text.

Nothing here may raise, whatever the exception is: its `__str__` may raise, and its text may
be a gigabyte or not valid text. Local variables are never kept, because they may hold
secrets.
"""

import re
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec

from durio.model.quantities import counted

MESSAGE_CHARS_MAX = 4_000
SHORT_CHARS_MAX = 600  # of a message; JSON needs at most 6 bytes for a character
TRACEBACK_CHARS_MAX = 16_000
LOG_LINES_MAX = 50
DECISION_CHARS_MAX = 300
LOG_LINE_CHARS_MAX = 1_000
# The file of a frame that stands for several, and its line in a traceback.
HIDDEN = "<hidden>"
FOLDED = re.compile(rf'File "{HIDDEN}", line \d+, in (\d+ frames?)')
FRAME_HEAD = '  File "'
FRAME = re.compile(rf"^(?={FRAME_HEAD})", re.MULTILINE)
REPR_CHARS_MAX = 200
REPR_CHARS_READ = 2_000  # of a long repr

HIDDEN_NAMES = r"[\w-]*(?:passw|secret|token|api_?key|credential|authorization)[\w-]*"
# A name and its value: 'password': 'x', password='x', "token": 5.
SECRET_VALUE = re.compile(
    rf"""(?ix) ( ['"]? {HIDDEN_NAMES} ['"]? \s* [:=] \s* )
    (?: '(?:[^'\\]|\\.)*(?:'|$) | "(?:[^"\\]|\\.)*(?:"|$) | [^,)}}\]\s]+ )"""
)
URL_PASSWORD = re.compile(r"(://[^/\s:@'\"]*):[^/\s@'\"]+@")


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One failed attempt, as stored in a job's list of errors."""

    type: str
    message: str
    traceback: str = ""
    attempt: int = 0
    at: float = 0.0
    worker: str = ""
    logs: tuple[str, ...] = ()
    decision: str = ""  # what happened to the job, and why, for people


_decoder = msgspec.json.Decoder(list[Failure])


def failures(stored: bytes | None) -> list[Failure]:
    """Return a job's failed attempts, oldest first."""
    if stored is None:
        return []
    try:
        return _decoder.decode(stored)
    except msgspec.DecodeError as error:
        # A damaged row must not hide the other errors.
        return [Failure(type="Damaged", message=f"the stored errors: {error}")]


def failure_of(
    error: BaseException,
    *,
    attempt: int = 0,
    at: float = 0.0,
    worker: str = "",
    logs: Sequence[str] = (),
    hidden: str = "",
    decision: str = "",
) -> Failure:
    """Describe `error`; frames of files under `hidden` become one line."""
    return Failure(
        type=storable(type(error).__qualname__, 200),
        message=error_text(error),
        traceback=_traceback_text(error, hidden),
        attempt=attempt,
        at=at,
        worker=worker,
        logs=tuple(storable(line, LOG_LINE_CHARS_MAX) for line in logs)[
            -LOG_LINES_MAX:
        ],
        decision=storable(decision, DECISION_CHARS_MAX),
    )


def error_text(error: BaseException) -> str:
    """Return str(error); of a group, its first error and the number of others. Never raises."""
    try:
        first, *others = errors_in(error)
        text = str(error) if first is error else f"{type(first).__qualname__}: {first}"
        if others:
            text += f" (and {len(others)} other error{'' if len(others) == 1 else 's'})"
        return storable(text, MESSAGE_CHARS_MAX)
    except BaseException as broken:
        return f"<no message: __str__ raised {type(broken).__name__}>"


def errors_in(error: BaseException) -> list[BaseException]:
    """Return the errors of a group and of the groups in it; else the error itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inner = cast("tuple[BaseException, ...]", error.exceptions)  # pyright: ignore[reportUnknownMemberType]
    return [each for one in inner for each in errors_in(one)]


def redacted_repr(value: object) -> str:
    """Return a short repr without what looks like a secret; never raises."""
    try:
        return redacted(repr(value))
    except BaseException as broken:
        return f"<{type(value).__name__}: its repr raised {type(broken).__name__}>"


def redacted(text: str) -> str:
    """Return a short text without what looks like a secret."""
    text = text[:REPR_CHARS_READ]
    text = SECRET_VALUE.sub(r"\1***", URL_PASSWORD.sub(r"\1:***@", text))
    return storable(text, REPR_CHARS_MAX)


def _traceback_text(error: BaseException, hidden: str) -> str:
    try:
        trace = traceback.TracebackException.from_exception(error, compact=True)
        if hidden:
            _fold(trace, hidden)
        text = FOLDED.sub(r"... and \1 of durio", "".join(trace.format()))
    except BaseException as broken:
        text = f"<no traceback: {type(broken).__name__} while formatting it>"
    if len(text) > TRACEBACK_CHARS_MAX:
        half = TRACEBACK_CHARS_MAX // 2
        text = f"{text[:half]}\n  ... cut ...\n{text[-half:]}"
    return storable(text, TRACEBACK_CHARS_MAX + 20)


def _fold(trace: Any, hidden: str) -> None:
    """Put one line in place of the hidden frames, below the others; keep them if alone."""
    others = [frame for frame in trace.stack if not frame.filename.startswith(hidden)]
    count = len(trace.stack) - len(others)
    if count and others:
        name = counted(count, "frame")
        trace.stack[:] = [*others, traceback.FrameSummary(HIDDEN, count, name, line="")]
    for other in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
        if other is not None:
            _fold(other, hidden)


def fold_stack(text: str, hidden: tuple[str, ...]) -> str:
    """Put one line for all frames of hidden files below the other frames of a stack."""
    frames = FRAME.split(text)[1:]
    ours = [frame for frame in frames if frame[len(FRAME_HEAD) :].startswith(hidden)]
    others = [frame for frame in frames if frame not in ours]
    if not ours or not others:
        return text
    return "".join([*others, f"  ... and {counted(len(ours), 'frame')} of durio\n"])


def storable(text: str, chars_max: int) -> str:
    """Return limited text without NUL or lone surrogates, which some stores cannot keep."""
    text = text[: chars_max + 1].replace("\0", "\\0")
    if len(text) > chars_max:
        text = text[: chars_max - 3] + "..."
    return text.encode("utf-8", "replace").decode()


def encode_failure(failure: Failure) -> bytes:
    return msgspec.json.encode(failure)


class ShortFailure(NamedTuple):
    """The type and the message of an error."""

    type: str
    message: str


CANCELLED = ShortFailure("JobCancelled", "the job was cancelled")
_short_decoder = msgspec.json.Decoder(Failure | None)


def short_failure(stored: bytes | None) -> ShortFailure:
    """Return the type and message of a stored failure; without one, of a cancelled job."""
    try:
        failure = None if stored is None else _short_decoder.decode(stored)
    except msgspec.DecodeError as error:
        return ShortFailure("Damaged", f"the stored error: {error}")
    if failure is None:
        return CANCELLED
    return ShortFailure(failure.type, failure.message)


def encode_short(stored: bytes) -> bytes:
    """Return a stored failure without its traceback and log lines, in at most 4 KiB."""
    kind, message = short_failure(stored)
    text = storable(message, SHORT_CHARS_MAX)
    return msgspec.json.encode(Failure(type=kind, message=text))
