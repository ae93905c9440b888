"""The arithmetic around the one statement: arrays in, claims in lane order out."""

from durio.model.ids import uuid7
from durio.model.job import Claim
from durio.model.outcome import KeepRule, Outcome, OutcomeKind
from durio.ports.exchange import Lane
from durio.stores.postgres.claims import in_lane_order, jobs_to_skip
from durio.stores.postgres.exit import (
    are_done,
    by_fence,
    done_columns,
    keep_columns,
    progress_update_columns,
)
from durio.stores.postgres.finished_jobs import (
    day_of_partition,
    last_id_of,
    partition_name,
)

ID = [uuid7(1_800_000_000_000, 0, n) for n in range(9)]


def claim(n: int, lane: str) -> Claim:
    return Claim(ID[n], 1, lane, 4, "shop.t", b"[]", 0, 0, 0, 0, None, None)


def test_claims_come_as_if_lanes_had_been_asked_in_turn() -> None:
    low = [claim(n, "low") for n in range(4)]
    high = [claim(n, "high") for n in range(4, 6)]
    lanes = [Lane("high", 1), Lane("low", 1), Lane("high", 5), Lane("low", 5)]
    ordered, more = in_lane_order([*low, *high], lanes, 6)
    assert ordered == [high[0], low[0], high[1], *low[1:]]
    assert more
    ordered, more = in_lane_order([*low, *high], lanes[2:], 9)
    assert (ordered, more) == ([*high, *low], False)
    assert in_lane_order([], lanes, 0) == ([], False)


def test_no_claim_is_ever_left_out() -> None:
    """Whatever the statement has claimed is ours to run, more than asked or not."""
    claims = [claim(n, "low") for n in range(3)]
    ordered, _ = in_lane_order(claims, [Lane("high", 1), Lane("low", 1)], 1)
    assert sorted(ordered) == claims


def test_a_lane_that_comes_again_passes_over_its_first_turn() -> None:
    assert jobs_to_skip(["a", "b"], [3, 4]) == []
    assert jobs_to_skip(["a", "b", "a", "a"], [3, 4, 5, 6]) == [0, 0, 3, 8]


def test_plain_outcomes_make_short_arrays() -> None:
    done = [Outcome(ID[n], 1, OutcomeKind.DONE, b"1") for n in (2, 0, 1)]
    assert are_done(done)
    assert not are_done([*done, Outcome(ID[3], 1, OutcomeKind.RETRY)])
    ids, claim_nos, results, seconds, *keep = done_columns(by_fence(done))
    assert (ids, claim_nos, results) == (ID[:3], [1] * 3, [b"1"] * 3)
    assert (seconds, keep) == ([3600.0] * 3, [[], [], []])
    assert done_columns([]) == ([], [], [], [], [], [], [])


def test_a_retention_of_its_own_fills_them() -> None:
    kept = Outcome(ID[0], 1, OutcomeKind.DONE, keep=KeepRule(60, 3, "shop.t"))
    columns = keep_columns([kept, Outcome(ID[1], 1, OutcomeKind.DONE)])
    assert columns == ([60.0, None], ["shop.t", None], [3, None])


def test_notes_of_one_claim_are_one_row() -> None:
    notes = [
        Outcome(ID[1], 1, OutcomeKind.PROGRESS, progress=b"1"),
        Outcome(ID[1], 1, OutcomeKind.ALONE),
        Outcome(ID[1], 1, OutcomeKind.PROGRESS, progress=b"2"),
        Outcome(ID[0], 2, OutcomeKind.ALONE),
    ]
    wanted = (ID[:2], [2, 1], [None, b"2"], [True, True])
    assert progress_update_columns(notes) == wanted


def test_days_and_ids_know_their_time() -> None:
    assert partition_name(20833) == "hist_d20270115"
    assert day_of_partition("hist_d20270115") == 20833
    for name in ("hist_default", "hist_d2027011", "hist_d20271315", "kept"):
        assert day_of_partition(name) is None
    assert last_id_of(1_800_000_000.0) > ID[8]
    assert last_id_of(1_799_999_999.999) < ID[0]
    assert last_id_of(-5.0)[:6] == bytes(6)
