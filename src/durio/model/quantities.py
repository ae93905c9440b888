"""Parse durations: seconds, a timedelta, or "90s" "5m" "2h" "3d", within limits.

Also amounts of memory: 500MB, 1.5G, 4096.
"""

import re
from datetime import timedelta

from durio.model.errors import InvalidOption

type_of_duration = "seconds, a timedelta, or text such as '90s', '5m', '2h', '3d'"
Duration = float | timedelta | str

SECONDS_MAX = 100 * 365 * 86400.0
DURATION_UNITS = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
DURATION_SHAPE = re.compile(
    r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|w)?\s*", re.ASCII
)


def seconds(duration: Duration, what: str = "duration") -> float:
    """Return a duration in seconds; refuse negative, infinite and malformed values."""
    if isinstance(duration, timedelta):
        value = duration.total_seconds()
    elif isinstance(duration, str):
        value = _parse(duration, what)
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        value = duration
    else:
        raise _refused(what, duration)
    # Compared before float(), because an int may be too large. NaN fails the comparison.
    if not 0 <= value <= SECONDS_MAX:
        raise _refused(what, duration)
    return float(value)


def _parse(text: str, what: str) -> float:
    found = DURATION_SHAPE.fullmatch(text)
    if found is None:
        raise _refused(what, text)
    number, unit = found.groups()
    return float(number) * DURATION_UNITS[unit or "s"]


def _refused(what: str, value: object) -> InvalidOption:
    return InvalidOption(
        f"{what} cannot be {value!r}",
        cure=f"Give {type_of_duration}, from 0 to 100 years.",
        option=what,
        value=value,
    )


def format_duration(value: float) -> str:
    """Return a duration for people: 0.4 s, 90 s, 5 min, 2.5 h, 3 d."""
    for limit, unit, name in (
        (120, 1.0, "s"),
        (7200, 60.0, "min"),
        (172800, 3600.0, "h"),
    ):
        if abs(value) < limit:
            return f"{value / unit:.3g} {name}"
    return f"{round(value / 86400.0, 1):g} d"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `no jobs`, `1 job`, `2 jobs`, `2 passes`."""
    plural = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number or 'no'} {noun}{plural}"


SIZE_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
SIZE_SHAPE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def size_bytes(text: str, what: str) -> int:
    """Return bytes; K, M, G and T are powers of 1024, also in KB and KiB."""
    match = SIZE_SHAPE.fullmatch(text.strip())
    if match is None:
        raise InvalidOption(
            f"{what} is {text!r}, which is not an amount of memory",
            cure="Write it as 500MB, 1.5G or a number of bytes.",
        )
    return int(float(match[1]) * SIZE_UNITS[match[2].lower()])
