"""The keys of the query language, and what their values mean.

Each key has a kind, which says how its values are checked. `QueryValue.meaning` is the
checked value: the number of a state, seconds, digits of an id, a range of milliseconds.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

from durio.model.errors import InvalidOption
from durio.model.ids import DIGITS
from durio.model.job import CODE_BY_STATE, PRIORITY_MAX, Priority, State
from durio.model.names import close_name
from durio.model.quantities import seconds

HEX_SHAPE = re.compile(r"[0-9a-f]+", re.ASCII)
NUMBER_SHAPE = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
WHOLE_SHAPE = re.compile(r"\d{1,9}", re.ASCII)
MOMENT_SHAPE = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt](\d\d:\d\d)(:\d\d)?(\.\d{1,3})?([Zz]|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS, MINUTE_MS, SECOND_MS = 86_400_000, 60_000, 1_000
QUOTED_CHARS = frozenset(',"*')


class QueryKey(NamedTuple):
    """A key, with what its values are."""

    name: str
    kind: str
    example: str  # a term with this key
    about: str  # what it means, for people
    is_indexed: bool = False  # it narrows what is read, in both stores
    has_path: bool = False


@dataclass(frozen=True, slots=True)
class QueryValue:
    """One value of a term."""

    text: str  # without quotes, operator and `*`
    operator: str = ""  # "" is equality
    is_prefix: bool = False
    meaning: Any = None  # by the kind of the key
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    def __str__(self) -> str:
        text = self.text if self.is_prefix and not self.text else quoted(self.text)
        return f"{self.operator}{text}{'*' if self.is_prefix else ''}"

    def text_of_word(self) -> str:
        """Return the value as a bare word, which no key or minus begins."""
        plain = str(self)
        is_unclear = plain.startswith("-") or ":" in plain
        if plain.startswith('"') or not is_unclear:
            return plain
        return f'"{escaped(self.text)}"{"*" if self.is_prefix else ""}'


def quoted(text: str) -> str:
    """Return text as a value: in quotes where it would mean something else."""
    is_plain = text and text[0] not in "<>=" and not QUOTED_CHARS.intersection(text)
    if is_plain and not any(char.isspace() for char in text):
        return text
    return f'"{escaped(text)}"'


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


class ValueProblem(Exception):
    """A value that its key cannot have."""

    def __init__(self, what: str, expected: str, suggestion: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        self.suggestion = suggestion


def parse_value(key: QueryKey, value: QueryValue) -> QueryValue:
    """Return the value with its meaning; raises ValueProblem for one that cannot be."""
    kind = KINDS[key.kind]
    if value.operator and not kind.is_ordered:
        raise ValueProblem(
            f"{key.name} cannot be compared with {value.operator!r}",
            f"{key.example}; or text in quotes",
            f'{key.name}:"{value.operator}{value.text}"',
        )
    if value.is_prefix and not kind.has_prefixes:
        raise ValueProblem(f"{key.name} cannot have '*'", key.example)
    return replace(value, meaning=kind.parse(key, value))


def text_meaning(key: QueryKey, value: QueryValue) -> str:
    del key
    return value.text


def state_meaning(key: QueryKey, value: QueryValue) -> int:
    del key
    known = [state.value for state in State]
    if value.text not in known:
        lower = value.text.lower()
        raise ValueProblem(
            f"there is no state {value.text[:80]!r}",
            f"one of {', '.join(known)}",
            lower if lower in known else close_name(lower, known),
        )
    return CODE_BY_STATE[State(value.text)]


def digits_meaning(key: QueryKey, value: QueryValue) -> str:
    """Return the hexadecimal digits of an id, or of its beginning."""
    digits = value.text.lower().replace("-", "")
    is_any = value.is_prefix and not digits
    if not is_any and (HEX_SHAPE.fullmatch(digits) is None or len(digits) > DIGITS):
        raise ValueProblem(
            f"{value.text[:60]!r} is not the beginning of an id",
            f"digits 0-9 and a-f, such as {key.example}",
        )
    return digits


def error_meaning(key: QueryKey, value: QueryValue) -> str:
    if not value.text.strip() and not value.is_prefix:
        raise ValueProblem("the part of an error is empty", key.example)
    return value.text.casefold()


def whole_meaning(key: QueryKey, value: QueryValue) -> int:
    if WHOLE_SHAPE.fullmatch(value.text) is None:
        raise ValueProblem(
            f"{value.text[:60]!r} is not a whole number",
            f"a whole number, such as {key.example}",
        )
    return int(value.text)


def priority_meaning(key: QueryKey, value: QueryValue) -> int:
    del key
    names = {priority.name.lower(): int(priority) for priority in Priority}
    if value.text in names:
        return names[value.text]
    if WHOLE_SHAPE.fullmatch(value.text) is None or int(value.text) > PRIORITY_MAX:
        raise ValueProblem(
            f"there is no priority {value.text[:60]!r}",
            f"0 to {PRIORITY_MAX}, or one of {', '.join(names)}",
            close_name(value.text, names),
        )
    return int(value.text)


def duration_meaning(key: QueryKey, value: QueryValue) -> float:
    """Return seconds."""
    try:
        found = seconds(value.text)
    except InvalidOption:
        raise ValueProblem(
            f"{value.text[:60]!r} is not a duration",
            f"a duration such as 90s, 5m, 2h or 3d, as in {key.example}",
        ) from None
    if not value.operator:
        raise ValueProblem(
            f"{key.name} needs a comparison",
            f"'<' or '>', as in {key.example}",
            f"{key.name}:>{value.text}",
        )
    return found


class Moments(NamedTuple):
    """The milliseconds since 1970 that a written time stands for: a day, a minute ..."""

    first: int
    end: int  # the first one after them


def moment_meaning(key: QueryKey, value: QueryValue) -> Moments | float:
    """Return the written time, or seconds of a duration: `<1h` means the last hour."""
    found = MOMENT_SHAPE.fullmatch(value.text)
    if found is None:
        try:
            return duration_meaning(key, value)
        except ValueProblem as problem:
            raise ValueProblem(
                problem.what.replace("a duration", "a time"),
                "a time such as 2026-11-16 or 2026-11-16T10:30:00Z, or a duration, as in "
                f"{key.name}:<1h",
                problem.suggestion,
            ) from None
    try:
        return moments_of(*found.groups())
    except ValueError:
        raise ValueProblem(
            f"{value.text[:60]!r} is not a time of the calendar", key.example
        ) from None


def moments_of(
    day: str,
    minute: str | None,
    second: str | None,
    fraction: str | None,
    zone: str | None,
) -> Moments:
    """Return the time that these parts stand for; without a zone it is in UTC."""
    if fraction and not second:
        raise ValueError(fraction)
    text = f"{day}T{minute or '00:00'}{second or ':00'}"
    moment = datetime.fromisoformat(text).replace(tzinfo=zone_of(zone))
    whole = (moment - EPOCH) // timedelta(milliseconds=1)
    if fraction:
        digits = fraction[1:]
        length = 10 ** (3 - len(digits))
        first = whole + int(digits) * length
        return Moments(first, first + length)
    length = SECOND_MS if second else MINUTE_MS if minute else DAY_MS
    return Moments(whole, whole + length)


def zone_of(text: str | None) -> timezone:
    if text is None or text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if minutes >= 60:  # noqa: PLR2004 - of an hour
        raise ValueError(text)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def json_meaning(key: QueryKey, value: QueryValue) -> float | int | None:
    """Return the number that the text also is; None if it is none."""
    number = NUMBER_SHAPE.fullmatch(value.text)
    if number is None:
        if value.operator:
            raise ValueProblem(
                f"{value.text[:60]!r} is not a number, so it cannot be compared",
                f"a number, such as {key.name}.amount:>100",
            )
        return None
    is_whole = number[1] is None and number[2] is None
    return int(value.text) if is_whole else float(value.text)


class ValueKind(NamedTuple):
    """How the values of some keys are checked."""

    parse: Callable[[QueryKey, QueryValue], Any]
    is_ordered: bool = False
    has_prefixes: bool = False


KINDS = {
    "state": ValueKind(state_meaning),
    "text": ValueKind(text_meaning, has_prefixes=True),
    "error": ValueKind(error_meaning, has_prefixes=True),
    "digits": ValueKind(digits_meaning, has_prefixes=True),
    "whole": ValueKind(whole_meaning, is_ordered=True),
    "priority": ValueKind(priority_meaning, is_ordered=True),
    "duration": ValueKind(duration_meaning, is_ordered=True),
    "moment": ValueKind(moment_meaning, is_ordered=True),
    "json": ValueKind(json_meaning, is_ordered=True, has_prefixes=True),
}
KEYS = {
    key.name: key
    for key in (
        QueryKey("state", "state", "state:dead", "where the job is in its life", True),
        QueryKey("queue", "text", "queue:mail", "name of the queue", True),
        QueryKey("task", "text", "task:send_*", "name of the task"),
        QueryKey("id", "digits", "id:0198c2f4", "id, or its beginning", True),
        QueryKey("key", "text", "key:order-42", "idempotency key"),
        QueryKey(
            "meta", "json", "meta.tenant:acme", "a value of `meta`", has_path=True
        ),
        QueryKey(
            "args",
            "json",
            "args.user:42",
            "an argument: by name, or by position as in `args.0`",
            has_path=True,
        ),
        QueryKey("error", "error", "error:timeout", "part of the last error"),
        QueryKey("reason", "text", "reason:exhausted", "why the job is dead"),
        QueryKey(
            "worker", "text", "worker:host/123", "worker that runs it, or ran it last"
        ),
        QueryKey("attempt", "whole", "attempt:>2", "number of the attempt"),
        QueryKey("priority", "priority", "priority:>=7", "0 to 9, or its name"),
        QueryKey("age", "duration", "age:>1h", "time since it was created", True),
        QueryKey("wait", "duration", "wait:>5m", "time for which it was due"),
        QueryKey("run", "duration", "run:>30s", "time that its last attempt took"),
        QueryKey("created", "moment", "created:>2026-11-16", "when it was made", True),
        QueryKey("finished", "moment", "finished:<1h", "when it ended"),
        QueryKey("schedule", "text", "schedule:nightly", "schedule that made it"),
        QueryKey("plan", "digits", "plan:0198c2f4", "id of its plan"),
        QueryKey("group", "digits", "group:3fa9", "fingerprint of its last error"),
        QueryKey("version", "text", "version:2.4", "version of the code that runs it"),
    )
}
