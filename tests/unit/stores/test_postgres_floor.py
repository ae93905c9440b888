"""Floors: taken when claims become slow, lowered by whoever comes back, given up in time."""

from durio.model.ids import uuid7
from durio.model.job import Claim
from durio.ports.exchange import Lane
from durio.stores.postgres.floor import (
    LOWEST_ID,
    MARGIN_JOBS,
    MARGIN_MS,
    REST_SECONDS_MAX,
    REST_SECONDS_MIN,
    Floor,
    Floors,
    floor_below,
    spans,
)
from durio.testing.conformance.clock import ManualClock

LANES = [Lane("shop:a", 100)]
QUICK, SLOW = 0.01, 1.0  # for a hundred jobs


def claims(count: int, *, at: int = 1_800_000_000_000, rank: int = 4) -> list[Claim]:
    """So many, of one rank, made at this millisecond."""
    return [
        Claim(
            uuid7(at, 0, n), 1, "shop:a", rank, "shop.t", b"[]", 0, 0, 0, 0, None, None
        )
        for n in range(count)
    ]


def engaged() -> tuple[Floors, ManualClock]:
    """Quick once, then slow for long enough."""
    clock = ManualClock()
    floors = Floors(clock)
    for seconds in (QUICK, SLOW, SLOW, SLOW):
        look = floors.look(LANES)
        assert look.is_whole
        floors.learn(look, claims(100), seconds)
    assert floors.is_engaged
    return floors, clock


def test_spans_leave_no_rank_out() -> None:
    assert spans({}) == [(0, 9, LOWEST_ID)]
    one, two = b"\x01" * 16, b"\x02" * 16
    middle, ends = {4: Floor(one)}, {0: Floor(one), 9: Floor(two)}
    assert spans(middle) == [(0, 3, LOWEST_ID), (4, 4, one), (5, 9, LOWEST_ID)]
    assert spans(ends) == [(0, 0, one), (1, 8, LOWEST_ID), (9, 9, two)]


def test_one_slow_look_is_anybodys_fault() -> None:
    floors = Floors(ManualClock())
    for seconds in (QUICK, SLOW, SLOW, QUICK, SLOW, SLOW):
        floors.learn(floors.look(LANES), claims(100), seconds)
        assert not floors.is_engaged


def test_a_small_batch_says_nothing() -> None:
    floors = Floors(ManualClock())
    floors.learn(floors.look(LANES), claims(100), QUICK)
    for _ in range(9):
        floors.learn(floors.look(LANES), claims(3), SLOW)
    assert not floors.is_engaged


def test_slow_claims_begin_a_little_before_the_last_one() -> None:
    floors, _ = engaged()
    look = floors.look(LANES)
    assert not look.is_whole
    numbers, lows, highs, firsts = look.columns
    assert (numbers, lows, highs) == ([1, 1, 1], [0, 4, 5], [3, 4, 9])
    assert firsts[1] == floor_below(claims(100)[-1].id)
    assert firsts[1] < uuid7(1_800_000_000_000 - MARGIN_MS // 2, 0, 0)


def test_who_comes_back_lowers_the_floor() -> None:
    floors, _ = engaged()
    early = uuid7(1_700_000_000_000, 0, 0)
    floors.lower("shop:a", 4, early)
    floors.lower("shop:a", 5, early)
    floors.lower("shop:b", 4, early)
    assert floors.look(LANES).columns[3][1] == early
    assert floors.by_lane.keys() == {"shop:a"}


def test_a_floor_stays_behind_by_so_many_jobs_or_so_much_time() -> None:
    floor = Floor()
    ids = [uuid7(1_800_000_000_000 + n, 0, n) for n in range(50)]
    for last in ids:
        floor.rise(last, 100)
    assert floor.first == ids[-1 - MARGIN_JOBS // 100]
    floor.rise(uuid7(1_800_000_060_000, 0, 0), 1)
    assert ids[-1] < floor.first < uuid7(1_800_000_060_000, 0, 0)
    assert floor.behind < MARGIN_JOBS + 100


def test_everything_is_looked_at_now_and_then() -> None:
    """Never for more than a twentieth of the time, and every half minute at least."""
    floors, clock = engaged()
    for took, rest in ((SLOW, 20.0), (0.02, REST_SECONDS_MIN), (9.0, REST_SECONDS_MAX)):
        floors.learn(floors.everything(LANES), claims(1), took)
        clock.advance(rest - 0.25)
        assert not floors.look(LANES).is_whole
        clock.advance(0.25)
        assert floors.look(LANES).is_whole
    assert floors.is_engaged


def test_floors_are_given_up_when_claims_are_quick_again() -> None:
    floors, clock = engaged()
    clock.advance(REST_SECONDS_MAX)
    floors.learn(floors.look(LANES), claims(100), QUICK)
    assert not floors.is_engaged
    assert floors.by_lane == {}
    assert floors.look(LANES).is_whole


def test_several_lanes_are_numbered_in_order() -> None:
    floors, _ = engaged()
    lanes = [Lane("shop:b", 10), Lane("shop:a", 10)]
    assert floors.look(lanes).columns[0] == [1, 2, 2, 2]
    assert floors.everything(lanes).columns[0] == [1, 2]
    assert floors.look([]).columns == ([], [], [], [])
