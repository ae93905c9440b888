"""Whose turn it is: shares by weight, exact and evenly mixed."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durio.model.round_robin import QueueCandidate, WeightedRoundRobin

WEIGHTS = {"high": 6, "default": 3, "low": 1}


def lots(
    room: int = 100, *, is_capped: bool = False, **weights: int
) -> list[QueueCandidate]:
    chosen = weights or WEIGHTS
    return [
        QueueCandidate(name, weight, room, is_capped) for name, weight in chosen.items()
    ]


def served(
    asked: Sequence[tuple[str, int]], want: int, stock: Mapping[str, int]
) -> Counter[str]:
    """What a store with this stock answers."""
    got: Counter[str] = Counter()
    for name, limit in asked:
        got[name] += min(limit, want - got.total(), stock.get(name, 0) - got[name])
    return +got


def halfway() -> float:
    return 0.5


@pytest.mark.parametrize("want", [1, 2, 7, 10, 130])
def test_full_queues_get_their_shares(want: int) -> None:
    shares = WeightedRoundRobin(halfway)
    picks: Counter[str] = Counter()
    while picks.total() < 1000:
        got = served(shares.split(lots(want), want), want, dict.fromkeys(WEIGHTS, want))
        assert got.total() == want
        assert shares.charge(got), "there is more"
        picks += got
    total = picks.total()
    for name, weight in WEIGHTS.items():
        assert picks[name] == pytest.approx(total * weight / 10, abs=2)


def test_picks_are_evenly_mixed() -> None:
    shares = WeightedRoundRobin(lambda: 0.0)
    picks: list[str] = []
    for _ in range(20):
        got = served(shares.split(lots(1), 1), 1, WEIGHTS)
        shares.charge(got)
        picks += got
    assert "".join(name[0] for name in picks[:10]).count("hhh") <= 1
    assert picks[:10].count("low") == picks[10:].count("low") == 1


def test_chance_decides_who_begins() -> None:
    """So that many workers that start at once do not all begin with one queue."""
    begins = {
        WeightedRoundRobin(iter(dice).__next__).split(lots(1, a=1, b=1), 1)[0][0]
        for dice in ([0.1, 0.9, 0, 0], [0.9, 0.1, 0, 0])
    }
    assert begins == {"a", "b"}


def test_an_empty_queue_leaves_its_share_in_the_same_call() -> None:
    shares = WeightedRoundRobin(halfway)
    got = served(shares.split(lots(10), 10), 10, {"default": 99, "low": 99})
    assert got.total() == 10


def test_a_dry_queue_is_asked_for_one_then_for_more() -> None:
    shares = WeightedRoundRobin(halfway)
    shares.charge(served(shares.split(lots(10), 10), 10, {"low": 99}))
    asked = shares.split(lots(10), 10)
    assert {asked[0], asked[1]} == {("high", 1), ("default", 1)}
    assert asked[2] == ("low", 10)
    got = served(asked, 10, {"high": 99, "low": 99})
    assert got["high"] == 1
    shares.charge(got)
    got = served(shares.split(lots(10), 10), 10, {"high": 99, "low": 99})
    assert got["high"] >= 8


@pytest.mark.parametrize("is_capped", [False, True])
@pytest.mark.parametrize("is_dealt", [False, True])
def test_nothing_is_saved_up(*, is_capped: bool, is_dealt: bool) -> None:
    """After long idle hours of the others, low gets no less than its share."""
    shares = WeightedRoundRobin(halfway)

    def exchange(stock: dict[str, int]) -> Counter[str]:
        some = lots(10, is_capped=is_capped)
        asked = (
            shares.split_with_prefetch(some, 10, 10)
            if is_dealt
            else shares.split(some, 10)
        )
        got = served(asked, 10, stock)
        shares.charge(got)
        return got

    for _ in range(100):
        exchange({"low": 99})
    picks: Counter[str] = Counter()
    shares.mark_filled()
    for _ in range(20):
        picks += exchange(dict.fromkeys(WEIGHTS, 99))
    assert picks["low"] == pytest.approx(20, abs=8)
    assert picks["high"] == pytest.approx(120, abs=8)


def test_a_capped_queue_saves_nothing_up_either() -> None:
    shares = WeightedRoundRobin(halfway)
    some = [QueueCandidate("high", 6, 1, is_capped=True), QueueCandidate("low", 1, 10)]
    for _ in range(100):
        shares.charge(served(shares.split(some, 10), 10, {"high": 99, "low": 99}))
    some[0] = QueueCandidate("high", 6, 10, is_capped=True)
    picks: Counter[str] = Counter()
    for _ in range(10):
        got = served(shares.split(some, 10), 10, {"high": 99, "low": 99})
        shares.charge(got)
        picks += got
    assert picks["low"] >= 10


def test_who_took_over_a_share_pays_for_it_later() -> None:
    shares = WeightedRoundRobin(halfway)
    full = dict.fromkeys(WEIGHTS, 99)
    for stock in ({"high": 99}, {"high": 99}, full, full, full, full):
        got = served(shares.split(lots(10), 10), 10, stock)
        shares.charge(got)
    assert got["low"] >= 1


def test_nobody_gives_more_than_its_room() -> None:
    shares = WeightedRoundRobin(halfway)
    some = [
        QueueCandidate("high", 6, 2),
        QueueCandidate("low", 1, 100),
        QueueCandidate("none", 9, 0),
    ]
    got = served(shares.split(some, 10), 10, {"high": 99, "low": 99, "none": 99})
    assert got == {"high": 2, "low": 8}
    shares.charge(got)


def test_all_dry_is_no_more() -> None:
    shares = WeightedRoundRobin(halfway)
    assert not shares.charge(served(shares.split(lots(10), 10), 10, {"low": 3}))
    assert not shares.charge(served(shares.split(lots(10), 10), 10, {}))


def test_a_ring_ends_the_belief_in_an_empty_queue() -> None:
    shares = WeightedRoundRobin(halfway)
    shares.charge(served(shares.split(lots(10), 10), 10, {}))
    shares.mark_filled(["low", "unknown"])
    assert dict(shares.split(lots(10), 10)[2:3]) == {"low": 10}
    shares.mark_filled()
    assert shares.split(lots(10), 10)[0][1] > 1


def test_forgotten_queues_begin_anew() -> None:
    shares = WeightedRoundRobin(halfway)
    shares.charge(served(shares.split(lots(10), 10), 10, {"low": 99}))
    shares.retain(["low"])
    assert shares.split(lots(10, high=6), 10) == [("high", 10)]


# --- where queues compete for slots


def holding(room: int = 10, **ahead: int) -> list[QueueCandidate]:
    return [
        QueueCandidate(name, weight, room, ahead=ahead[name])
        for name, weight in WEIGHTS.items()
        if name in ahead
    ]


def test_no_slot_is_promised_twice() -> None:
    shares = WeightedRoundRobin(halfway)
    ahead = {"high": 2, "default": 0, "low": 5}
    asked = shares.split_with_prefetch(holding(**ahead), 4, 11)
    assert sum(max(0, limit - ahead[name]) for name, limit in asked) <= 4
    assert shares.charge(served(asked, 11, dict.fromkeys(WEIGHTS, 99)))


def test_what_waits_overtakes_nobody_who_may_not_wait() -> None:
    shares = WeightedRoundRobin(lambda: 0.0)
    picks: Counter[str] = Counter()
    for _ in range(100):
        asked = shares.split_with_prefetch(
            holding(300, high=0, default=256, low=256), 10, 266
        )
        got = served(asked, 266, dict.fromkeys(WEIGHTS, 999))
        shares.charge(got)
        picks += got
    total = picks.total()
    assert total >= 1000, "every slot is used"
    for name, weight in WEIGHTS.items():
        assert picks[name] == pytest.approx(total * weight / 10, abs=2)


def test_without_a_slot_nobody_goes_before_who_may_not_wait() -> None:
    shares = WeightedRoundRobin(lambda: 0.0)
    assert shares.split_with_prefetch(holding(high=0, low=5), 0, 5) == []
    assert not shares.charge({})
    assert shares.split_with_prefetch(holding(high=0, low=5), 1, 6) == [("high", 1)]


def test_a_queue_at_its_own_slots_leaves_free_ones_to_the_others() -> None:
    shares = WeightedRoundRobin(halfway)
    some = [
        QueueCandidate("high", 6, 0, is_capped=True),
        QueueCandidate("low", 1, 20, ahead=10),
    ]
    assert shares.split_with_prefetch(some, 3, 13) == [("low", 3)], (
        "to start; none waits"
    )


def test_dry_queues_get_slots_that_nobody_uses() -> None:
    shares = WeightedRoundRobin(halfway)
    none = dict.fromkeys(WEIGHTS, 0)
    while shares.charge(
        served(shares.split_with_prefetch(holding(**none), 4, 4), 4, {})
    ):
        pass
    assert (
        sum(limit for _, limit in shares.split_with_prefetch(holding(**none), 4, 4))
        == 4
    )
    shares.mark_filled(["high"])
    asked = dict(shares.split_with_prefetch(holding(high=0, default=0, low=3), 4, 7))
    assert asked == {"low": 1, "high": 4}, "one to hold ahead, no slot"


def test_slots_in_strict_order() -> None:
    shares = WeightedRoundRobin(halfway, is_strict=True)
    assert shares.split_with_prefetch(lots(3), 4, 4) == [("high", 3), ("default", 1)]
    shares.charge({"default": 1})
    assert shares.split_with_prefetch(lots(3), 4, 4)[-2:] == [
        ("default", 3),
        ("low", 1),
    ]


def test_what_came_is_mixed_by_shares_as_they_stood() -> None:
    shares = WeightedRoundRobin(lambda: 0.0)
    shares.charge(served(shares.split(lots(9), 9), 9, dict.fromkeys(WEIGHTS, 99)))
    shares.split(lots(9), 9)
    names = ["high", "high", "default", "low", "unknown"]
    assert names[shares.interleaved(names)[0]] == "low", (
        "nine went before: it is its turn"
    )


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20), min_size=1),
    st.lists(
        st.tuples(
            st.integers(1, 40),
            st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50)),
        ),
        max_size=30,
    ),
)
def test_whatever_is_in_stock_is_taken(
    weights: dict[str, int], rounds: list[tuple[int, dict[str, int]]]
) -> None:
    """No share is lost to queues that have nothing."""
    shares = WeightedRoundRobin(halfway)
    for want, stock in rounds:
        some = lots(want, **weights)
        got = served(shares.split(some, want), want, stock)
        shares.charge(got)
        there = sum(min(want, stock.get(name, 0)) for name in weights)
        assert got.total() == min(want, there)
