"""Looks for due jobs: from the head, until that is slow; then from where nothing was left."""

from math import inf

from durio.stores.postgres.due import (
    MARGIN_SECONDS,
    REST_SECONDS_MAX,
    REST_SECONDS_MIN,
    SLOW_LOOKS,
    SLOW_SECONDS,
    DueLooks,
)
from tests.conformance.manual_clock import ManualClock

LANES = ["shop:a", "shop:b"]
SLOW = 0.1


def engaged() -> tuple[DueLooks, ManualClock]:
    """Slow for long enough, and both lanes are swept."""
    clock = ManualClock()
    looks = DueLooks(clock)
    for _ in range(SLOW_LOOKS):
        assert looks.ages(LANES) == [inf, inf]
        looks.judge([inf, inf], SLOW)
    assert looks.is_engaged
    looks.swept(LANES, clock.monotonic())
    return looks, clock


def test_one_slow_look_is_anybodys_fault() -> None:
    looks = DueLooks(ManualClock())
    for seconds in (SLOW, SLOW, SLOW_SECONDS, SLOW, SLOW):
        looks.judge([inf], seconds)
        assert not looks.is_engaged


def test_a_look_at_nothing_says_nothing() -> None:
    looks, _ = engaged()
    looks.judge([], 0.0)
    looks.judge([3.0, inf], 0.0)
    assert looks.is_engaged


def test_slow_looks_begin_where_nothing_was_left() -> None:
    looks, clock = engaged()
    clock.advance(0.5)
    assert looks.ages(LANES) == [0.5 + MARGIN_SECONDS] * 2
    looks.swept(["shop:b"], clock.monotonic())
    assert looks.ages(LANES) == [0.5 + MARGIN_SECONDS, MARGIN_SECONDS]
    assert looks.ages(["shop:new"]) == [inf]


def test_everything_is_looked_at_now_and_then() -> None:
    """Never for more than a twentieth of the time, and every half minute at least."""
    looks, clock = engaged()
    for took, rest in ((SLOW, 2.0), (0.02, REST_SECONDS_MIN), (9.0, REST_SECONDS_MAX)):
        looks.judge([inf, inf], took)
        clock.advance(rest - 0.25)
        assert inf not in looks.ages(LANES)
        clock.advance(0.25)
        assert looks.ages(LANES) == [inf, inf]


def test_it_ends_when_looks_are_quick_again() -> None:
    looks, clock = engaged()
    looks.judge([inf, inf], SLOW_SECONDS)
    assert looks.ages(LANES) == [inf, inf]
    looks.swept(LANES, clock.monotonic())
    assert looks.swept_at == {}
