"""Rounds below the floors: every place there is looked at again, a slice at a time.

One look at all places below the floors would take seconds after some minutes of full load
under an old snapshot. So each look of a worker takes one slice with it at most, and slices
are cut by the time in their ids until each takes a few hundredths of a second. Rounds take a
twentieth of the time, and more when a round would last longer than half a minute; but never
more than a fifth: then a round takes as long as it takes.

Floors: where to begin looking for ready jobs while somebody keeps old row versions alive.

A claim goes through its lane from the first place on. Places of jobs that were claimed long
ago are gone soon, unless a transaction somewhere in the database is so old that it could
still see them: then every claim walks over all of them, and each walk is longer than the
last. A worker notices that its claims have become slow and remembers how far it came in
each lane and rank: from then on it begins a little before that.

Jobs that come to lie below a floor (a retry, a job that was due, a producer whose commit
took long) are found too: whoever puts one there in this process lowers the floor, and
`patrol.py` goes through all that lies below the floors again and again.

How far back to look for due jobs while somebody keeps old row versions alive.

The first due job of a lane is at the head of its index, behind the places of all that were
due before, for as long as a transaction somewhere could still see them. When such looks have
become slow, they begin where nothing was left at the last one.

What comes to be due below that (a caller's transaction that took long, a clock that was set)
is found by the looks at everything, which take a twentieth of the time at most and are
never more than half a minute apart.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from durio.model.job import PRIORITY_MAX, Claim
from durio.ports.clock import Clock
from durio.ports.exchange import Lane

SLICE_SECONDS = 0.03  # a slice that takes longer is cut
MERGED_SECONDS = SLICE_SECONDS / 8  # one that takes less goes with the one before
SLICES_MAX = 1000  # in one rank of one lane
SLICE_CUTS = 22  # a second before the end, two, four, ... 24 days
REST_FACTOR_MIN, REST_FACTOR_MAX = 4.0, 20.0
RESCAN_SECONDS = 20.0  # what a round may take, if it can
RESCAN_REST_SECONDS = 1.0  # between two rounds
# A round as quick as this one: perhaps the old row versions are gone.
QUICK_RESCAN_SECONDS = 0.02
LOWEST_ID = bytes(16)
ID_TIME_BYTES = 6


class RescanSlice(NamedTuple):
    """Places in one rank of one lane, from the first id up to the last, without it."""

    lane: str
    rank: int
    first: bytes
    last: bytes


@dataclass(slots=True)
class WatermarkRescan:
    """The rounds of one process in one lane."""

    lane: str
    clock: Clock
    # Where the slices of each rank begin.
    starts: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    remaining: list[RescanSlice] = field(
        default_factory=list[RescanSlice]
    )  # of this round
    seconds: float | None = None  # that the looks of this round took
    rest_factor: float = REST_FACTOR_MAX
    due_at: float = 0.0
    is_quick: bool = False  # the last round was quick

    def next_slice(self, watermarks: Iterable[tuple[int, bytes]]) -> RescanSlice | None:
        """What the next look takes with it, below these floors; None: nothing."""
        if self.clock.monotonic() < self.due_at:
            return None
        if not self.remaining:
            self._begin(watermarks)
            return None
        return self.remaining[0]

    def record_scan(self, done: RescanSlice, seconds: float, lanes: int) -> None:
        """That look took so long, this slice and all; so many lanes have rounds."""
        if done not in self.remaining:
            return  # another look had it as well
        self.remaining.remove(done)
        self.seconds = (self.seconds or 0.0) + seconds
        self._adjust(done, seconds)
        self.due_at = self.clock.monotonic() + self.rest_factor * lanes * seconds

    def postpone(self, postponed: RescanSlice) -> None:
        """That look had enough before it came through: others first, then again."""
        if postponed in self.remaining:
            self.remaining.remove(postponed)
            self.remaining.append(postponed)

    def _begin(self, watermarks: Iterable[tuple[int, bytes]]) -> None:
        """A round, in a while: all that lies below these ids, by rank."""
        if self.seconds is not None:
            self.is_quick = self.seconds < QUICK_RESCAN_SECONDS
            factor = RESCAN_SECONDS / max(self.seconds, QUICK_RESCAN_SECONDS) - 1
            self.rest_factor = min(max(factor, REST_FACTOR_MIN), REST_FACTOR_MAX)
        self.seconds = None
        self.remaining = [
            each for rank, floor in watermarks for each in self._slices(rank, floor)
        ]
        self.due_at = self.clock.monotonic() + RESCAN_REST_SECONDS

    def _slices(self, rank: int, watermark: bytes) -> list[RescanSlice]:
        whole = [LOWEST_ID, *slice_starts(LOWEST_ID, watermark)]
        starts = self.starts.setdefault(rank, whole)
        below = starts[: bisect_left(starts, watermark)]
        ends = zip(below, [*below[1:], watermark], strict=True)
        return [RescanSlice(self.lane, rank, first, last) for first, last in ends]

    def _adjust(self, done: RescanSlice, seconds: float) -> None:
        starts = self.starts[done.rank]
        place = bisect_right(starts, done.first) - 1
        if seconds > SLICE_SECONDS:
            room = max(SLICES_MAX - len(starts), 0)
            starts[place + 1 : place + 1] = slice_starts(done.first, done.last)[:room]
        elif seconds < MERGED_SECONDS and place > 0:
            del starts[place]


def slice_starts(first: bytes, last: bytes) -> list[bytes]:
    """Narrow towards the end, where most of it lies that was claimed lately."""
    ends = time_in(last)
    places = [id_at(ends - 1000 * 2**power) for power in reversed(range(SLICE_CUTS))]
    return [place for place in places if place > first]


def time_in(job_id: bytes) -> int:
    """Ids begin with the milliseconds at which they were made."""
    return int.from_bytes(job_id[:ID_TIME_BYTES])


def id_at(milliseconds: int) -> bytes:
    """The lowest id of that time."""
    return max(milliseconds, 0).to_bytes(ID_TIME_BYTES) + LOWEST_ID[ID_TIME_BYTES:]


SLOW_FACTOR = 4.0  # times the best time per job
SLOW_SCANS = 3  # in a row: one may be anybody's fault
QUICK_SECONDS = 0.002  # whatever it brought: nothing is slow here
JOBS_MIN = 20  # a smaller batch is judged as one of so many
# A process that starts under an old snapshot sees slow looks only: none of them is the best.
BEST_SECONDS_MAX = 25e-6
# Commits do not come in the order of ids: a floor stays behind by so much, or so many.
MARGIN_MS = 1000
MARGIN_JOBS = 2000
IDLE_MARGIN_MS = 5000  # where nothing was claimed yet: the clocks of producers differ
RANKS = PRIORITY_MAX + 1

# Which lane; from this rank and id; up to this rank and id, without that place.
RangeColumns = tuple[list[int], list[int], list[bytes], list[int], list[bytes]]


class ClaimRanges(NamedTuple):
    """Where to look."""

    columns: RangeColumns
    full_lanes: Sequence[str] | None = (
        None  # lanes that are looked at from their head; None: all
    )
    rescan_slice: RescanSlice | None = None  # of what lies below the floors


class RankIdRange(NamedTuple):
    """Places from (rank, first) up to (end_rank, end), without that one."""

    rank: int
    first: bytes
    end_rank: int
    end: bytes


ONE_LANE_RANGES = ClaimRanges(([1], [0], [LOWEST_ID], [RANKS], [LOWEST_ID]))


@dataclass(slots=True)
class Watermark:
    """How far this process came in one rank of one lane."""

    first: bytes = LOWEST_ID  # where to begin
    newest: deque[tuple[bytes, int]] = field(default_factory=deque[tuple[bytes, int]])
    behind: int = 0  # jobs in `newest`

    def raise_to(self, last: bytes, jobs: int) -> None:
        """So many were claimed, up to this one."""
        if last < self.first:
            return  # from a piece below
        self.newest.append((last, jobs))
        self.behind += jobs
        self.first = max(self.first, watermark_below(last))
        while self.behind - self.newest[0][1] >= MARGIN_JOBS:
            passed, jobs = self.newest.popleft()
            self.behind -= jobs
            self.first = max(self.first, passed)

    def lower_to(self, job_id: bytes) -> None:
        """Down to this one; how far it once came counts no more."""
        if job_id < self.first:
            self.first = job_id
            self.newest.clear()
            self.behind = 0


@dataclass(slots=True)
class LaneWatermarks:
    """Those of one lane, by rank."""

    rescan: WatermarkRescan
    by_rank: dict[int, Watermark] = field(default_factory=dict[int, Watermark])

    def rank(self, rank: int) -> Watermark:
        """Of this rank; the first time it lets everything through."""
        return self.by_rank.setdefault(rank, Watermark())

    def starts(self) -> list[tuple[int, bytes]]:
        """Rank by rank, where to begin."""
        return [(rank, floor.first) for rank, floor in self.by_rank.items()]


@dataclass(slots=True)
class Watermarks:
    """The floors of one process, in lanes whose claims are slow."""

    clock: Clock
    best: float = BEST_SECONDS_MAX  # seconds per job
    slow: dict[str, int] = field(default_factory=dict[str, int])  # looks in a row
    by_lane: dict[str, LaneWatermarks] = field(
        default_factory=dict[str, LaneWatermarks]
    )

    # --- looking

    def next_ranges(self, lanes: Sequence[Lane]) -> ClaimRanges:
        """Where the next claims begin."""
        if not self.by_lane:
            return self.full_ranges(lanes)
        piece = self._next_slice(lanes)
        numbers: list[int] = []
        found: list[RankIdRange] = []
        whole: list[str] = []
        for number, lane in enumerate(lanes, start=1):
            mine = self.by_lane.get(lane.name)
            if mine is None or mine.rescan.is_quick:
                whole.append(lane.name)
                places = ranges_of({}, None)
            else:
                is_there = piece is not None and piece.lane == lane.name
                places = ranges_of(mine.by_rank, piece if is_there else None)
            numbers += [number] * len(places)
            found += places
        columns = (
            numbers,
            [span.rank for span in found],
            [span.first for span in found],
            [span.end_rank for span in found],
            [span.end for span in found],
        )
        return ClaimRanges(columns, whole, piece)

    def full_ranges(self, lanes: Sequence[Lane]) -> ClaimRanges:
        """From the first place of every lane."""
        count = len(lanes)
        if count == 1:
            return ONE_LANE_RANGES
        lowest = [LOWEST_ID] * count
        numbers = list(range(1, count + 1))
        return ClaimRanges((numbers, [0] * count, lowest, [RANKS] * count, lowest))

    def _next_slice(self, lanes: Sequence[Lane]) -> RescanSlice | None:
        """Of the lane that has waited longest for it."""
        known = {lane.name: self.by_lane.get(lane.name) for lane in lanes}
        mine = [floors for floors in known.values() if floors is not None]
        for floors in sorted(mine, key=lambda floors: floors.rescan.due_at):
            piece = floors.rescan.next_slice(floors.starts())
            if piece is not None and not floors.rescan.is_quick:
                return piece
        return None

    # --- learning

    def learn(
        self,
        ranges: ClaimRanges,
        lanes: Sequence[Lane],
        want: int,
        claims: Sequence[Claim],
        seconds: float,
    ) -> None:
        """From how long the server looked, and how far it came."""
        if ranges.rescan_slice is None:
            self._judge_speed(ranges, lanes, seconds, len(claims))
        elif (mine := self.by_lane.get(ranges.rescan_slice.lane)) is not None:
            if is_slice_done(ranges.rescan_slice, lanes, want, claims):
                mine.rescan.record_scan(ranges.rescan_slice, seconds, len(self.by_lane))
            else:
                mine.rescan.postpone(ranges.rescan_slice)
        if self.by_lane:
            seen = self._raise(claims)
            self._raise_idle(ranges, lanes, seen, seconds, is_full=len(claims) >= want)

    def _judge_speed(
        self, ranges: ClaimRanges, lanes: Sequence[Lane], seconds: float, jobs: int
    ) -> None:
        """Whether claims are slow, by a look from the head of lanes."""
        if jobs >= JOBS_MIN and ranges.full_lanes is None:
            self.best = min(self.best, seconds / jobs)
        limit = max(QUICK_SECONDS, SLOW_FACTOR * self.best * max(jobs, JOBS_MIN))
        if seconds <= limit and not self.slow:
            return
        names = (
            [lane.name for lane in lanes]
            if ranges.full_lanes is None
            else ranges.full_lanes
        )
        for name in names:
            if seconds <= limit:
                self.slow.pop(name, None)
                self.by_lane.pop(name, None)
            else:
                self._mark_slow(name)

    def _mark_slow(self, name: str) -> None:
        self.slow[name] = self.slow.get(name, 0) + 1
        if name in self.by_lane:
            self.by_lane[name].rescan.is_quick = False
        elif self.slow[name] >= SLOW_SCANS:
            self.by_lane[name] = LaneWatermarks(WatermarkRescan(name, self.clock))

    def _raise(self, claims: Sequence[Claim]) -> dict[str, tuple[int, int]]:
        """As far as these claims came; jobs and last rank by lane."""
        came: dict[tuple[str, int], tuple[bytes, int]] = {}
        seen: dict[str, tuple[int, int]] = {}
        for claim in claims:
            last, jobs = came.get((claim.lane, claim.rank), (LOWEST_ID, 0))
            came[claim.lane, claim.rank] = (max(last, claim.id), jobs + 1)
        for (lane, rank), (last, jobs) in came.items():
            if lane in self.by_lane:
                self.by_lane[lane].rank(rank).raise_to(last, jobs)
            count, top = seen.get(lane, (0, 0))
            seen[lane] = (count + jobs, max(top, rank))
        return seen

    def _raise_idle(
        self,
        ranges: ClaimRanges,
        lanes: Sequence[Lane],
        seen: dict[str, tuple[int, int]],
        seconds: float,
        *,
        is_full: bool,
    ) -> None:
        """Ranks where nothing was left are not gone through again either."""
        first = id_at(int(self.clock.now() * 1000) - IDLE_MARGIN_MS)
        for name, limit in lanes:
            mine = self.by_lane.get(name)
            if mine is None or ranges.full_lanes is None or name in ranges.full_lanes:
                continue
            count, top = seen.get(name, (0, 0))
            if count < limit and not is_full and seconds > QUICK_SECONDS:
                top = RANKS
            for rank in range(top):
                if rank not in mine.by_rank:
                    mine.by_rank[rank] = Watermark(first)

    def lower(self, lane: str, rank: int, job_id: bytes) -> None:
        """A job was put there: below the floor nobody would see it."""
        mine = self.by_lane.get(lane)
        if mine is not None and rank in mine.by_rank:
            mine.by_rank[rank].lower_to(job_id)


def is_slice_done(
    rescan_slice: RescanSlice, lanes: Sequence[Lane], want: int, claims: Sequence[Claim]
) -> bool:
    """Whether that look came to the end of the piece, or had enough before."""
    in_lane = [claim for claim in claims if claim.lane == rescan_slice.lane]
    room = sum(lane.limit for lane in lanes if lane.name == rescan_slice.lane)
    if len(claims) < want and len(in_lane) < room:
        return True
    end = (rescan_slice.rank, rescan_slice.last)
    return any((claim.rank, claim.id) >= end for claim in in_lane)


def watermark_below(job_id: bytes) -> bytes:
    """A little before this job."""
    return id_at(time_in(job_id) - MARGIN_MS)


def ranges_of(
    watermarks: dict[int, Watermark], rescan_slice: RescanSlice | None
) -> list[RankIdRange]:
    """From floor to floor: ranks without one go together. Of one rank also the piece."""
    found: list[RankIdRange] = []
    low = 0
    for rank in sorted(watermarks):
        if low < rank:
            found.append(RankIdRange(low, LOWEST_ID, rank, LOWEST_ID))
        first = watermarks[rank].first
        if rescan_slice is not None and rescan_slice.rank == rank:
            found.append(
                RankIdRange(
                    rank, rescan_slice.first, rank, min(rescan_slice.last, first)
                )
            )
        low = rank + 1
        found.append(RankIdRange(rank, first, low, LOWEST_ID))
    if low < RANKS:
        found.append(RankIdRange(low, LOWEST_ID, RANKS, LOWEST_ID))
    return found


DUE_SLOW_SECONDS = 0.002
LEADER_DUE_SLOW_SECONDS = 0.05  # two statements, and the way to the server
DUE_SLOW_SCANS = 3  # in a row: one may be anybody's fault
DUE_REST_FACTOR = 20.0
DUE_REST_SECONDS_MIN, DUE_REST_SECONDS_MAX = 1.0, 30.0
DUE_MARGIN_SECONDS = 1.0  # what is written now may be seen so much later


@dataclass(slots=True)
class DueWatermarks:
    """The looks of one process, by lane."""

    clock: Clock
    slow_seconds: float = DUE_SLOW_SECONDS
    slow_scans: int = 0
    full_scan_at: float = 0.0  # when the next look at everything is due
    empty_at: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def is_engaged(self) -> bool:
        """Whether looks begin later than at the head."""
        return self.slow_scans >= DUE_SLOW_SCANS

    def ages(self, lanes: Sequence[str]) -> list[float]:
        """For each lane, how long ago the oldest may have been due that is looked for."""
        now = self.clock.monotonic()
        if not self.is_engaged or now >= self.full_scan_at:
            return [inf] * len(lanes)
        return [
            now - self.empty_at.get(lane, -inf) + DUE_MARGIN_SECONDS for lane in lanes
        ]

    def record_scan(self, ages: Sequence[float], seconds: float) -> None:
        """A look took so long; one at everything says whether they are slow."""
        if not ages or any(age < inf for age in ages):
            return
        self.slow_scans = self.slow_scans + 1 if seconds > self.slow_seconds else 0
        rest = min(
            max(DUE_REST_FACTOR * seconds, DUE_REST_SECONDS_MIN), DUE_REST_SECONDS_MAX
        )
        self.full_scan_at = self.clock.monotonic() + rest

    def record_empty(self, lanes: Iterable[str], began: float) -> None:
        """Nothing was due there any more at that time."""
        if self.is_engaged:
            self.empty_at.update(dict.fromkeys(lanes, began))
        elif self.empty_at:
            self.empty_at.clear()
