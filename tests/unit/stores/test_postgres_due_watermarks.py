"""Looks for due jobs: from the head, until that is slow; then from where nothing was left."""

from math import inf

from durio.stores.postgres.watermarks import (
    DUE_MARGIN_SECONDS,
    DUE_REST_SECONDS_MAX,
    DUE_REST_SECONDS_MIN,
    DUE_SLOW_SCANS,
    DUE_SLOW_SECONDS,
    DueWatermarks,
)
from tests.conformance.manual_clock import ManualClock

LANES = ["shop:a", "shop:b"]
SLOW = 0.1


def engaged() -> tuple[DueWatermarks, ManualClock]:
    """Slow for long enough, and both lanes are swept."""
    clock = ManualClock()
    looks = DueWatermarks(clock)
    for _ in range(DUE_SLOW_SCANS):
        assert looks.ages(LANES) == [inf, inf]
        looks.record_scan([inf, inf], SLOW)
    assert looks.is_engaged
    looks.record_empty(LANES, clock.monotonic())
    return looks, clock


def test_one_slow_look_is_anybodys_fault() -> None:
    looks = DueWatermarks(ManualClock())
    for seconds in (SLOW, SLOW, DUE_SLOW_SECONDS, SLOW, SLOW):
        looks.record_scan([inf], seconds)
        assert not looks.is_engaged


def test_a_look_at_nothing_says_nothing() -> None:
    looks, _ = engaged()
    looks.record_scan([], 0.0)
    looks.record_scan([3.0, inf], 0.0)
    assert looks.is_engaged


def test_slow_looks_begin_where_nothing_was_left() -> None:
    looks, clock = engaged()
    clock.advance(0.5)
    assert looks.ages(LANES) == [0.5 + DUE_MARGIN_SECONDS] * 2
    looks.record_empty(["shop:b"], clock.monotonic())
    assert looks.ages(LANES) == [0.5 + DUE_MARGIN_SECONDS, DUE_MARGIN_SECONDS]
    assert looks.ages(["shop:new"]) == [inf]


def test_everything_is_looked_at_now_and_then() -> None:
    """Never for more than a twentieth of the time, and every half minute at least."""
    looks, clock = engaged()
    for took, rest in (
        (SLOW, 2.0),
        (0.02, DUE_REST_SECONDS_MIN),
        (9.0, DUE_REST_SECONDS_MAX),
    ):
        looks.record_scan([inf, inf], took)
        clock.advance(rest - 0.25)
        assert inf not in looks.ages(LANES)
        clock.advance(0.25)
        assert looks.ages(LANES) == [inf, inf]


def test_it_ends_when_looks_are_quick_again() -> None:
    looks, clock = engaged()
    looks.record_scan([inf, inf], DUE_SLOW_SECONDS)
    assert looks.ages(LANES) == [inf, inf]
    looks.record_empty(LANES, clock.monotonic())
    assert looks.empty_at == {}
