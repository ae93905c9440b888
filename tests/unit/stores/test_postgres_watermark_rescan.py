"""Rounds below the floors, on a lane that never forgets: all is found, at a bounded price.

The lane here is a list: a look walks over every place that was ever taken, as a server does
under an old snapshot, and its time is the number of places it walked over.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from durio.model.ids import uuid7
from durio.model.job import Claim
from durio.ports.exchange import Lane
from durio.stores.postgres import watermarks
from durio.stores.postgres.watermarks import (
    LOWEST_ID,
    ClaimRanges,
    RescanSlice,
    WatermarkRescan,
    Watermarks,
    id_at,
    slice_starts,
    time_in,
)
from tests.conformance.manual_clock import ManualClock

pytestmark = pytest.mark.slow  # real processes, servers or seconds

BATCH = 100
LANES = [Lane("shop:a", BATCH)]
STEP_SECONDS = 2e-7  # over one place
FOUND_SECONDS = 30.0  # as the docs promise
SHARE_MAX = 0.35  # of the time: 0.13 without any old places
BASE_SECONDS = 0.0003  # of a look, whatever it brings
START_MS = 1_800_000_000_000

Place = tuple[int, bytes]


@dataclass
class OldLane:
    """Nothing that was taken goes away before `forget`."""

    clock: ManualClock
    watermarks: Watermarks
    places: list[Place] = field(default_factory=list[Place])  # taken and waiting
    waiting: set[bytes] = field(default_factory=set[bytes])
    walked_seconds: float = 0.0
    longest_seconds: float = 0.0
    number: int = 0

    def put(self, count: int, *, ago_ms: int = 0, rank: int = 4) -> list[bytes]:
        """Jobs made so long ago become visible now."""
        made = int(self.clock.now() * 1000) - ago_ms
        ids: list[bytes] = []
        for _ in range(count):
            self.number += 1
            ids.append(uuid7(made, 0, self.number))
            insort(self.places, (rank, ids[-1]))
        self.waiting.update(ids)
        return ids

    def take(self) -> int:
        """One look, as the statement does it; how many it brought."""
        look = self.watermarks.next_ranges(LANES)
        taken, walked = self._walk(look)
        self.waiting.difference_update(job_id for _, job_id in taken)
        seconds = BASE_SECONDS + walked * STEP_SECONDS
        self.clock.advance(seconds)
        self.walked_seconds += seconds
        self.longest_seconds = max(self.longest_seconds, seconds)
        claims = [
            Claim(job_id, 1, "shop:a", rank, "shop.t", b"", 0, 0, 0, 0, None, None)
            for rank, job_id in taken
        ]
        self.watermarks.learn(look, LANES, BATCH, claims, seconds)
        return len(claims)

    def _walk(self, look: ClaimRanges) -> tuple[list[Place], int]:
        taken: list[Place] = []
        walked = 0
        for low, first, high, end in zip(*look.columns[1:], strict=True):
            at = bisect_left(self.places, (low, first))
            while at < len(self.places) and self.places[at] < (high, end):
                if len(taken) == BATCH:
                    return taken, walked
                walked += 1
                if self.places[at][1] in self.waiting:
                    taken.append(self.places[at])
                at += 1
        return taken, walked

    def forget(self) -> None:
        """The snapshot is gone, and vacuum came by."""
        self.places = [each for each in self.places if each[1] in self.waiting]


def old_lane() -> OldLane:
    """At the beginning of the snapshot."""
    clock = ManualClock()
    return OldLane(clock, Watermarks(clock))


def load(lane: OldLane, rounds: int) -> None:
    """Full load: as many come as are taken."""
    for _ in range(rounds):
        lane.put(BATCH)
        lane.take()
        lane.clock.advance(0.002)


def share_of_looks(lane: OldLane, rounds: int) -> float:
    """Which part of the time goes into looks."""
    began, walked = lane.clock.monotonic(), lane.walked_seconds
    load(lane, rounds)
    return (lane.walked_seconds - walked) / (lane.clock.monotonic() - began)


def test_full_load_stays_cheap_under_an_old_snapshot() -> None:
    lane = old_lane()
    load(lane, 500)
    lane.longest_seconds = 0.0
    assert share_of_looks(lane, 2500) < SHARE_MAX
    assert len(lane.places) == 300_000, "a look at all of them: 0.06 s"
    assert lane.longest_seconds < 1.5 * watermarks.SLICE_SECONDS


def test_whatever_is_put_below_a_floor_is_found() -> None:
    lane = old_lane()
    load(lane, 1000)
    for power in (3, 8, 10, 11, 12, 13, 15, 18, 22):
        ago = 2**power
        late = set(lane.put(power * 20, ago_ms=ago))
        until = lane.clock.monotonic() + FOUND_SECONDS
        while late & lane.waiting:
            load(lane, 1)
            assert lane.clock.monotonic() < until, f"{ago} ms ago"


def test_a_rank_that_was_quiet_is_found_below_its_floor() -> None:
    lane = old_lane()
    lane.put(20_000, rank=2)
    load(lane, 400)
    late = set(lane.put(150, ago_ms=60_000, rank=2))
    until = lane.clock.monotonic() + FOUND_SECONDS
    while late & lane.waiting:
        load(lane, 1)
        assert lane.clock.monotonic() < until


def test_who_starts_under_an_old_snapshot_becomes_quick() -> None:
    lane = old_lane()
    load(lane, 2000)
    lane.watermarks = Watermarks(lane.clock)
    load(lane, 100)
    assert share_of_looks(lane, 500) < SHARE_MAX


def test_floors_go_when_the_snapshot_does() -> None:
    lane = old_lane()
    load(lane, 1000)
    assert lane.watermarks.by_lane
    lane.forget()
    for _ in range(2000):
        load(lane, 1)
        lane.forget()
    assert not lane.watermarks.by_lane
    assert not lane.watermarks.slow


def test_cuts_are_narrow_towards_the_end() -> None:
    first, last = id_at(START_MS - 5000), uuid7(START_MS, 5, 5)
    assert [START_MS - time_in(cut) for cut in slice_starts(first, last)] == [
        4000,
        2000,
        1000,
    ]
    assert slice_starts(id_at(START_MS - 1000), last) == []
    assert slice_starts(LOWEST_ID, id_at(0)) == []


def test_a_long_round_rests_less_but_never_too_little() -> None:
    clock = ManualClock()
    rounds = WatermarkRescan("shop:a", clock)
    floors = [(4, id_at(1))]
    assert rounds.next_slice(floors) is None  # the first round begins
    for took, factor in ((0.1, 20.0), (2.0, 9.0), (600.0, 4.0)):
        clock.advance(watermarks.RESCAN_REST_SECONDS)
        piece = rounds.next_slice(floors)
        assert piece == RescanSlice("shop:a", 4, LOWEST_ID, id_at(1))
        rest = 2 * rounds.rest_factor * took
        rounds.record_scan(piece, took, lanes=2)
        clock.advance(rest - 0.5)
        rounds.next_slice(floors)
        assert not rounds.remaining, "it rests"
        clock.advance(0.5)
        rounds.next_slice(floors)
        assert rounds.rest_factor == factor


def test_a_piece_that_two_looks_had_counts_once() -> None:
    rounds = WatermarkRescan("shop:a", ManualClock())
    rounds.next_slice([(4, id_at(1))])
    (piece,) = rounds.remaining
    rounds.record_scan(piece, 1.0, 1)
    rounds.record_scan(piece, 1.0, 1)
    assert rounds.seconds == 1.0


def test_every_lane_has_its_rounds_however_they_are_asked() -> None:
    """One of them all the time, the other now and then."""
    clock = ManualClock()
    floors = Watermarks(clock)
    busy, rare = [Lane("shop:busy", BATCH)], [Lane("shop:rare", BATCH)]
    for lanes in (busy, rare) * 3:
        floors.learn(floors.next_ranges(lanes), lanes, BATCH, [], 1.0)
    for name in ("shop:busy", "shop:rare"):
        floors.by_lane[name].rank(4).first = id_at(START_MS)
    looked: set[RescanSlice] = set()
    for turn in range(5000):
        lanes = rare if turn % 20 == 0 else busy
        look = floors.next_ranges(lanes)
        if look.rescan_slice is not None:
            looked.add(look.rescan_slice)
        floors.learn(look, lanes, BATCH, [], watermarks.SLICE_SECONDS / 2)
        clock.advance(0.01)
    for name in ("shop:busy", "shop:rare"):
        mine = sorted(piece for piece in looked if piece.lane == name)
        assert mine[0].first == LOWEST_ID
        assert mine[-1].last >= id_at(START_MS)
        for piece, following in pairwise(mine):
            assert piece.last >= following.first, f"a gap in {name}"
