"""Floors: taken when claims become slow, lowered by whoever comes back, given up in time."""

from durio.model.ids import uuid7
from durio.model.job import Claim
from durio.ports.exchange import Lane
from durio.stores.postgres.watermarks import (
    IDLE_MARGIN_MS,
    JOBS_MIN,
    LOWEST_ID,
    MARGIN_JOBS,
    MARGIN_MS,
    QUICK_SECONDS,
    RESCAN_REST_SECONDS,
    SLOW_SCANS,
    RescanSlice,
    Watermark,
    Watermarks,
    ranges_of,
    time_in,
    watermark_below,
)
from tests.conformance.manual_clock import ManualClock

LANES = [Lane("shop:a", 100)]
WANT = 200
QUICK, SLOW = 0.001, 1.0  # for a hundred jobs


def claims(count: int, *, at: int = 1_800_000_000_000, rank: int = 4) -> list[Claim]:
    """So many, of one rank, made at this millisecond."""
    return [
        Claim(
            uuid7(at, 0, n), 1, "shop:a", rank, "shop.t", b"[]", 0, 0, 0, 0, None, None
        )
        for n in range(count)
    ]


def look_and_learn(watermarks: Watermarks, count: int, seconds: float) -> None:
    """A look that brings so many and takes so long."""
    watermarks.learn(watermarks.next_ranges(LANES), LANES, WANT, claims(count), seconds)


def engaged() -> tuple[Watermarks, ManualClock]:
    """Quick once, then slow for long enough."""
    clock = ManualClock()
    floors = Watermarks(clock)
    for seconds in (QUICK, *[SLOW] * SLOW_SCANS):
        assert floors.next_ranges(LANES).full_lanes is None
        look_and_learn(floors, 100, seconds)
    assert floors.by_lane
    return floors, clock


def test_spans_leave_no_place_out() -> None:
    one, two = b"\x01" * 16, b"\x02" * 16
    middle, ends = {4: Watermark(one)}, {0: Watermark(one), 9: Watermark(two)}
    assert ranges_of({}, None) == [(0, LOWEST_ID, 10, LOWEST_ID)]
    assert ranges_of(middle, None) == [
        (0, LOWEST_ID, 4, LOWEST_ID),
        (4, one, 5, LOWEST_ID),
        (5, LOWEST_ID, 10, LOWEST_ID),
    ]
    assert ranges_of(ends, None) == [
        (0, one, 1, LOWEST_ID),
        (1, LOWEST_ID, 9, LOWEST_ID),
        (9, two, 10, LOWEST_ID),
    ]


def test_a_piece_below_comes_first_and_ends_at_the_floor() -> None:
    low, one, two = bytes(15) + b"\x01", b"\x01" * 16, b"\x02" * 16
    piece = RescanSlice("shop:a", 0, low, two)
    whole = [(0, one, 1, LOWEST_ID), (1, LOWEST_ID, 10, LOWEST_ID)]
    assert ranges_of({0: Watermark(one)}, piece) == [(0, low, 0, one), *whole]
    assert ranges_of({1: Watermark(one)}, piece)[1:] == [
        (1, one, 2, LOWEST_ID),
        (2, LOWEST_ID, 10, LOWEST_ID),
    ]


def test_one_slow_look_is_anybodys_fault() -> None:
    floors = Watermarks(ManualClock())
    for seconds in (QUICK, SLOW, SLOW, QUICK, SLOW, SLOW):
        look_and_learn(floors, 100, seconds)
        assert not floors.by_lane


def test_who_starts_when_all_is_slow_sees_it_too() -> None:
    floors = Watermarks(ManualClock())
    for _ in range(SLOW_SCANS):
        look_and_learn(floors, 100, SLOW)
    assert floors.by_lane


def test_a_slow_look_that_brings_little_is_slow() -> None:
    floors = Watermarks(ManualClock())
    for _ in range(SLOW_SCANS):
        look_and_learn(floors, 1, QUICK_SECONDS)
    assert not floors.by_lane
    for _ in range(SLOW_SCANS):
        look_and_learn(floors, 0, SLOW)
    assert floors.by_lane


def test_a_small_quick_batch_is_no_measure() -> None:
    floors = Watermarks(ManualClock())
    best = floors.best
    look_and_learn(floors, JOBS_MIN - 1, 1e-9)
    assert floors.best == best
    look_and_learn(floors, JOBS_MIN, 1e-9)
    assert floors.best < best


def test_slow_claims_begin_a_little_before_the_last_one() -> None:
    floors, _ = engaged()
    look = floors.next_ranges(LANES)
    assert look.full_lanes == []
    numbers, lows, firsts, highs, _ = look.columns
    assert (numbers, lows, highs) == ([1, 1, 1], [0, 4, 5], [4, 5, 10])
    assert firsts[1] == watermark_below(claims(100)[-1].id)
    assert firsts[1] < uuid7(1_800_000_000_000 - MARGIN_MS // 2, 0, 0)


def test_who_comes_back_lowers_the_floor() -> None:
    floors, _ = engaged()
    early = uuid7(1_700_000_000_000, 0, 0)
    floors.lower("shop:a", 4, early)
    floors.lower("shop:a", 5, early)
    floors.lower("shop:b", 4, early)
    assert floors.next_ranges(LANES).columns[2][1] == early
    assert floors.by_lane.keys() == {"shop:a"}


def test_a_floor_stays_behind_by_so_many_jobs_or_so_much_time() -> None:
    floor = Watermark()
    ids = [uuid7(1_800_000_000_000 + n, 0, n) for n in range(50)]
    for last in ids:
        floor.raise_to(last, 100)
    assert floor.first == ids[-1 - MARGIN_JOBS // 100]
    floor.raise_to(uuid7(1_800_000_060_000, 0, 0), 1)
    assert ids[-1] < floor.first < uuid7(1_800_000_060_000, 0, 0)
    assert floor.behind < MARGIN_JOBS + 100


def test_who_is_found_below_leaves_the_floor_where_it_is() -> None:
    floor = Watermark()
    for n in range(50):
        floor.raise_to(uuid7(1_800_000_000_000 + n, 0, n), 100)
    first = floor.first
    floor.raise_to(uuid7(1_700_000_000_000, 0, 0), 100)
    assert floor.first == first


def test_a_lowered_floor_forgets_how_far_it_came() -> None:
    floors, _ = engaged()
    floor = floors.by_lane["shop:a"].by_rank[4]
    early = uuid7(1_700_000_000_000, 0, 0)
    floors.lower("shop:a", 4, early)
    floor.raise_to(uuid7(1_700_000_000_500, 0, 0), MARGIN_JOBS)
    assert floor.first == early


def test_a_piece_counts_when_the_look_came_through() -> None:
    floors, clock = engaged()
    floors.next_ranges(LANES)
    clock.advance(RESCAN_REST_SECONDS)
    look = floors.next_ranges(LANES)
    assert look.rescan_slice is not None
    pieces = len(floors.by_lane["shop:a"].rescan.remaining)
    below = claims(100, at=time_in(look.rescan_slice.first) + 1)
    floors.learn(look, LANES, WANT, below, QUICK)
    assert len(floors.by_lane["shop:a"].rescan.remaining) == pieces, (
        "there may be more in it"
    )
    assert floors.by_lane["shop:a"].rescan.remaining[-1] == look.rescan_slice
    floors.learn(look, LANES, WANT, below[:99], QUICK)
    assert len(floors.by_lane["shop:a"].rescan.remaining) == pieces - 1, (
        "there was room for more"
    )
    clock.advance(RESCAN_REST_SECONDS)
    look = floors.next_ranges(LANES)
    assert look.rescan_slice is not None
    floors.learn(look, LANES, WANT, claims(100), QUICK)
    assert len(floors.by_lane["shop:a"].rescan.remaining) == pieces - 2, (
        "it came to the floor"
    )


def test_ranks_where_nothing_was_left_get_a_floor() -> None:
    floors, clock = engaged()
    look_and_learn(floors, WANT, QUICK)
    assert floors.by_lane["shop:a"].by_rank.keys() == {0, 1, 2, 3, 4}
    idle = floors.by_lane["shop:a"].by_rank[0].first
    assert time_in(idle) == int(clock.now() * 1000) - IDLE_MARGIN_MS
    look_and_learn(floors, 10, QUICK)
    assert len(floors.by_lane["shop:a"].by_rank) == 5, (
        "quick: perhaps it was not looked at"
    )
    look_and_learn(floors, 10, SLOW)
    assert len(floors.by_lane["shop:a"].by_rank) == 10


def test_floors_are_given_up_when_claims_are_quick_again() -> None:
    floors, clock = engaged()
    looks = 0
    while floors.by_lane:
        look_and_learn(floors, 100, QUICK / 10)
        clock.advance(RESCAN_REST_SECONDS / 10)
        looks += 1
        assert looks < 1000
    assert floors.by_lane == {}
    assert floors.next_ranges(LANES).full_lanes is None


def test_several_lanes_are_numbered_in_order() -> None:
    floors, _ = engaged()
    lanes = [Lane("shop:b", 10), Lane("shop:a", 10)]
    assert floors.next_ranges(lanes).columns[0] == [1, 2, 2, 2]
    assert floors.full_ranges(lanes).columns[0] == [1, 2]
    assert floors.next_ranges([]).columns == ([], [], [], [], [])


def test_lanes_are_judged_apart() -> None:
    """A quick lane that is asked by itself says nothing of a slow one."""
    floors, quick = Watermarks(ManualClock()), [Lane("shop:quick", 100)]
    for _ in range(SLOW_SCANS):
        look_and_learn(floors, 100, SLOW)
        floors.learn(floors.next_ranges(quick), quick, WANT, [], QUICK)
    assert floors.by_lane.keys() == {"shop:a"}
    both = [*quick, *LANES]
    assert floors.next_ranges(both).full_lanes == ["shop:quick"]
    floors.learn(floors.next_ranges(quick), quick, WANT, [], QUICK)
    assert floors.by_lane.keys() == {"shop:a"}
