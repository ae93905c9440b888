"""Durations: what is understood, what is refused, how they are spoken."""

import math
from datetime import timedelta

import pytest

from durio.model.errors import InvalidOption
from durio.model.quantities import SECONDS_MAX, counted, format_duration, seconds


@pytest.mark.proves("M28")
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (0, 0.0),
        (1.5, 1.5),
        (timedelta(minutes=2), 120.0),
        ("90", 90.0),
        ("90s", 90.0),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("3d", 259200.0),
        ("1w", 604800.0),
        ("250ms", 0.25),
        (" 1.5 h ", 5400.0),
        (SECONDS_MAX, SECONDS_MAX),
    ],
)
def test_every_way_to_say_it_is_seconds(given: object, wanted: float) -> None:
    assert seconds(given) == pytest.approx(wanted)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "given",
    [
        *(-1, -0.1, math.nan, math.inf, 10**400, SECONDS_MAX + 1, timedelta(-1)),
        *(True, None, [], "", "m", "-5s", "5 minutes", "1e3", "٣s", "1" * 13, "99999d"),
    ],
)
def test_negative_endless_and_meaningless_ones_are_refused(given: object) -> None:
    with pytest.raises(InvalidOption, match="delay cannot be") as caught:
        seconds(given, "delay")  # pyright: ignore[reportArgumentType]
    assert caught.value.values["option"] == "delay"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (0.4, "0.4 s"),
        (90, "90 s"),
        (300, "5 min"),
        (9000, "2.5 h"),
        (259200, "3 d"),
        (36500 * 86400, "36500 d"),
        (-5, "-5 s"),
    ],
)
def test_people_read_short_words(given: float, wanted: str) -> None:
    assert format_duration(given) == wanted


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (0, "job", "no jobs"),
        (1, "job", "1 job"),
        (2, "job", "2 jobs"),
        (1, "pass", "1 pass"),
        (3, "pass", "3 passes"),
    ],
)
def test_singular_and_plural(number: int, noun: str, said: str) -> None:
    assert counted(number, noun) == said
