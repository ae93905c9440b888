"""Watermarks: where scans begin while an old transaction keeps old row versions alive.

A claim scans the ready rows of its lane from the first one on. Deleted rows of earlier
claims are cleaned up soon, unless an old transaction somewhere in the database could still
see them. Then every claim steps over all of these rows, and each scan takes longer than the
one before. A process that notices slow claims therefore remembers how far it came in each
lane and rank. This is the watermark, and its next claims begin a little before it.

Jobs may be written below a watermark: a retry, a job that became due, a job of a producer
whose commit took long. A process that writes such a job lowers its own watermark. Other
processes find the job by a rescan: they repeatedly scan all rows below their watermarks.
After some minutes of full load under an old snapshot, one scan of all these rows would take
seconds. So each claim scans at most one slice of them, and slices are split by the time in
the job ids until each takes about 30 ms. Rescans use about 5 % of the time, and more if a
rescan would otherwise last longer than 20 s. They never use more than 20 %, even if a
rescan then lasts longer than 20 s.

Scans for due jobs have the same problem. The first due job of a lane comes in its index
after the deleted rows of all earlier due jobs, for as long as an old transaction could
still see these. When such scans become slow, they begin at the time at which the last scan
left no job due. A job can become due before that time, because a caller's transaction took
long or a clock was set. Full scans find these jobs. A full scan runs at least every 30 s;
otherwise full scans use at most 5 % of the time.
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

SLICE_SECONDS = 0.03  # a slice that takes longer is split
MERGED_SECONDS = SLICE_SECONDS / 8  # a faster slice is merged with the one before
SLICES_MAX = 1000  # per rank and lane
SLICE_CUTS = 22  # cut 1 s before the end, 2 s, 4 s, ... 24 days
REST_FACTOR_MIN, REST_FACTOR_MAX = 4.0, 20.0
RESCAN_SECONDS = 20.0  # target for the length of a rescan
RESCAN_REST_SECONDS = 1.0  # pause between two rescans
# After a rescan faster than this, the old row versions may be gone.
QUICK_RESCAN_SECONDS = 0.02
LOWEST_ID = bytes(16)
ID_TIME_BYTES = 6


class RescanSlice(NamedTuple):
    """Rows of one rank of one lane, from id `first` up to but not including `last`."""

    lane: str
    rank: int
    first: bytes
    last: bytes


@dataclass(slots=True)
class WatermarkRescan:
    """The repeated rescan of one lane by one process."""

    lane: str
    clock: Clock
    # For each rank, the ids at which slices begin.
    starts: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    remaining: list[RescanSlice] = field(
        default_factory=list[RescanSlice]
    )  # slices left in this rescan
    seconds: float | None = None  # time spent on this rescan; None: no slice yet
    rest_factor: float = REST_FACTOR_MAX
    due_at: float = 0.0
    is_quick: bool = False  # the last rescan was fast

    def next_slice(self, watermarks: Iterable[tuple[int, bytes]]) -> RescanSlice | None:
        """Return the slice that the next claim scans; None if no slice is due."""
        if self.clock.monotonic() < self.due_at:
            return None
        if not self.remaining:
            self._begin(watermarks)
            return None
        return self.remaining[0]

    def record_scan(self, done: RescanSlice, seconds: float, lanes: int) -> None:
        """Record that a claim scanned this slice in `seconds`.

        `lanes` is the number of lanes that have rescans.
        """
        if done not in self.remaining:
            return  # another claim scanned the same slice
        self.remaining.remove(done)
        self.seconds = (self.seconds or 0.0) + seconds
        self._adjust(done, seconds)
        self.due_at = self.clock.monotonic() + self.rest_factor * lanes * seconds

    def postpone(self, postponed: RescanSlice) -> None:
        """Repeat the slice after the others: the claim had enough jobs before its end."""
        if postponed in self.remaining:
            self.remaining.remove(postponed)
            self.remaining.append(postponed)

    def _begin(self, watermarks: Iterable[tuple[int, bytes]]) -> None:
        """Prepare a rescan of all rows below these ids (by rank) that starts after a pause."""
        if self.seconds is not None:
            self.is_quick = self.seconds < QUICK_RESCAN_SECONDS
            factor = RESCAN_SECONDS / max(self.seconds, QUICK_RESCAN_SECONDS) - 1
            self.rest_factor = min(max(factor, REST_FACTOR_MIN), REST_FACTOR_MAX)
        self.seconds = None
        self.remaining = [
            each
            for rank, watermark in watermarks
            for each in self._slices(rank, watermark)
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
        index = bisect_right(starts, done.first) - 1
        if seconds > SLICE_SECONDS:
            room = max(SLICES_MAX - len(starts), 0)
            starts[index + 1 : index + 1] = slice_starts(done.first, done.last)[:room]
        elif seconds < MERGED_SECONDS and index > 0:
            del starts[index]


def slice_starts(first: bytes, last: bytes) -> list[bytes]:
    """Return ids that split the range, closer together near its end, where recent jobs are."""
    ends = time_in(last)
    starts = [id_at(ends - 1000 * 2**power) for power in reversed(range(SLICE_CUTS))]
    return [start for start in starts if start > first]


def time_in(job_id: bytes) -> int:
    """Return the Unix time in ms with which every id begins."""
    return int.from_bytes(job_id[:ID_TIME_BYTES])


def id_at(milliseconds: int) -> bytes:
    """Return the lowest id with that Unix time."""
    return max(milliseconds, 0).to_bytes(ID_TIME_BYTES) + LOWEST_ID[ID_TIME_BYTES:]


SLOW_FACTOR = 4.0  # a scan is slow above this multiple of the best time per job
SLOW_SCANS = 3  # this many slow scans in a row; a single one may be chance
QUICK_SECONDS = 0.002  # a scan this short is never slow
JOBS_MIN = 20  # a smaller batch counts as this many jobs
# Upper limit for the best time per job. Without it, a process that starts under an old
# snapshot would see only slow scans and take them for normal.
BEST_SECONDS_MAX = 25e-6
# Jobs are not committed in the order of their ids, so a watermark stays this far behind the
# last claim, in ms or in jobs.
MARGIN_MS = 1000
MARGIN_JOBS = 2000
IDLE_MARGIN_MS = 5000  # margin in ranks without a claim yet; producers' clocks differ
RANKS = PRIORITY_MAX + 1

# Columns: lane number, first rank and id, end rank and id (not included).
RangeColumns = tuple[list[int], list[int], list[bytes], list[int], list[bytes]]


class ClaimRanges(NamedTuple):
    columns: RangeColumns
    full_lanes: Sequence[str] | None = None  # lanes scanned from their head; None: all
    rescan_slice: RescanSlice | None = None  # below the watermarks


class RankIdRange(NamedTuple):
    """Rows from (rank, first) up to but not including (end_rank, end)."""

    rank: int
    first: bytes
    end_rank: int
    end: bytes


ONE_LANE_RANGES = ClaimRanges(([1], [0], [LOWEST_ID], [RANKS], [LOWEST_ID]))


@dataclass(slots=True)
class Watermark:
    """How far this process has scanned in one rank of one lane."""

    first: bytes = LOWEST_ID  # where scans begin
    newest: deque[tuple[bytes, int]] = field(default_factory=deque[tuple[bytes, int]])
    behind: int = 0  # number of jobs in `newest`

    def raise_to(self, last: bytes, jobs: int) -> None:
        """Raise the watermark after a claim of `jobs` jobs up to id `last`."""
        if last < self.first:
            return  # the claim scanned a rescan slice below the watermark
        self.newest.append((last, jobs))
        self.behind += jobs
        self.first = max(self.first, watermark_below(last))
        while self.behind - self.newest[0][1] >= MARGIN_JOBS:
            passed, jobs = self.newest.popleft()
            self.behind -= jobs
            self.first = max(self.first, passed)

    def lower_to(self, job_id: bytes) -> None:
        """Lower a higher watermark to this id, and forget how far claims came."""
        if job_id < self.first:
            self.first = job_id
            self.newest.clear()
            self.behind = 0


@dataclass(slots=True)
class LaneWatermarks:
    rescan: WatermarkRescan
    by_rank: dict[int, Watermark] = field(default_factory=dict[int, Watermark])

    def rank(self, rank: int) -> Watermark:
        """Return the rank's watermark; a new one begins at the lowest id."""
        return self.by_rank.setdefault(rank, Watermark())

    def starts(self) -> list[tuple[int, bytes]]:
        return [(rank, watermark.first) for rank, watermark in self.by_rank.items()]


@dataclass(slots=True)
class Watermarks:
    """The watermarks of one process, in lanes whose claims are slow."""

    clock: Clock
    best: float = BEST_SECONDS_MAX  # best time per job in seconds
    slow: dict[str, int] = field(default_factory=dict[str, int])  # slow scans in a row
    by_lane: dict[str, LaneWatermarks] = field(
        default_factory=dict[str, LaneWatermarks]
    )

    # --- which rows to scan

    def next_ranges(self, lanes: Sequence[Lane]) -> ClaimRanges:
        if not self.by_lane:
            return self.full_ranges(lanes)
        rescan_slice = self._next_slice(lanes)
        numbers: list[int] = []
        found: list[RankIdRange] = []
        whole: list[str] = []
        for number, lane in enumerate(lanes, start=1):
            mine = self.by_lane.get(lane.name)
            if mine is None or mine.rescan.is_quick:
                whole.append(lane.name)
                ranges = ranges_of({}, None)
            else:
                is_there = rescan_slice is not None and rescan_slice.lane == lane.name
                ranges = ranges_of(mine.by_rank, rescan_slice if is_there else None)
            numbers += [number] * len(ranges)
            found += ranges
        columns = (
            numbers,
            [span.rank for span in found],
            [span.first for span in found],
            [span.end_rank for span in found],
            [span.end for span in found],
        )
        return ClaimRanges(columns, whole, rescan_slice)

    def full_ranges(self, lanes: Sequence[Lane]) -> ClaimRanges:
        count = len(lanes)
        if count == 1:
            return ONE_LANE_RANGES
        lowest = [LOWEST_ID] * count
        numbers = list(range(1, count + 1))
        return ClaimRanges((numbers, [0] * count, lowest, [RANKS] * count, lowest))

    def _next_slice(self, lanes: Sequence[Lane]) -> RescanSlice | None:
        """Return a slice of the lane whose rescan is overdue for the longest time."""
        known = {lane.name: self.by_lane.get(lane.name) for lane in lanes}
        mine = [watermarks for watermarks in known.values() if watermarks is not None]
        for watermarks in sorted(mine, key=lambda watermarks: watermarks.rescan.due_at):
            rescan_slice = watermarks.rescan.next_slice(watermarks.starts())
            if rescan_slice is not None and not watermarks.rescan.is_quick:
                return rescan_slice
        return None

    # --- updates after a claim

    def learn(
        self,
        ranges: ClaimRanges,
        lanes: Sequence[Lane],
        want: int,
        claims: Sequence[Claim],
        seconds: float,
    ) -> None:
        """Update after a claim that took `seconds` on the server and returned `claims`."""
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
        """Decide from a scan that began at the head of lanes whether their claims are slow."""
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
        """Raise watermarks to these claims; return number of jobs and last rank by lane."""
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
        """Set a watermark in ranks that have none and in which the scan left no job."""
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
        """Lower the watermark to a job written to this rank, so that claims find it."""
        mine = self.by_lane.get(lane)
        if mine is not None and rank in mine.by_rank:
            mine.by_rank[rank].lower_to(job_id)


def is_slice_done(
    rescan_slice: RescanSlice, lanes: Sequence[Lane], want: int, claims: Sequence[Claim]
) -> bool:
    """Whether the claim reached the end of the slice before it had enough jobs."""
    in_lane = [claim for claim in claims if claim.lane == rescan_slice.lane]
    room = sum(lane.limit for lane in lanes if lane.name == rescan_slice.lane)
    if len(claims) < want and len(in_lane) < room:
        return True
    end = (rescan_slice.rank, rescan_slice.last)
    return any((claim.rank, claim.id) >= end for claim in in_lane)


def watermark_below(job_id: bytes) -> bytes:
    """Return the lowest id MARGIN_MS before this job."""
    return id_at(time_in(job_id) - MARGIN_MS)


def ranges_of(
    watermarks: dict[int, Watermark], rescan_slice: RescanSlice | None
) -> list[RankIdRange]:
    """Return the ranges above the watermarks, and the slice.

    Adjacent ranks without a watermark form one range.
    """
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
LEADER_DUE_SLOW_SECONDS = 0.05  # the time covers two statements and the network
DUE_SLOW_SCANS = 3  # this many slow scans in a row; a single one may be chance
DUE_REST_FACTOR = 20.0
DUE_REST_SECONDS_MIN, DUE_REST_SECONDS_MAX = 1.0, 30.0
DUE_MARGIN_SECONDS = 1.0  # a write may become visible this late


@dataclass(slots=True)
class DueWatermarks:
    """Where one process begins its scans for due jobs, for each lane."""

    clock: Clock
    slow_seconds: float = DUE_SLOW_SECONDS
    slow_scans: int = 0
    full_scan_at: float = 0.0  # when the next full scan is due
    empty_at: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def is_engaged(self) -> bool:
        """Whether scans begin after the head of the index."""
        return self.slow_scans >= DUE_SLOW_SCANS

    def ages(self, lanes: Sequence[str]) -> list[float]:
        """Return for each lane how many seconds back to scan; inf means a full scan."""
        now = self.clock.monotonic()
        if not self.is_engaged or now >= self.full_scan_at:
            return [inf] * len(lanes)
        return [
            now - self.empty_at.get(lane, -inf) + DUE_MARGIN_SECONDS for lane in lanes
        ]

    def record_scan(self, ages: Sequence[float], seconds: float) -> None:
        """Record the duration of a scan; only full scans count as slow or fast."""
        if not ages or any(age < inf for age in ages):
            return
        self.slow_scans = self.slow_scans + 1 if seconds > self.slow_seconds else 0
        rest = min(
            max(DUE_REST_FACTOR * seconds, DUE_REST_SECONDS_MIN), DUE_REST_SECONDS_MAX
        )
        self.full_scan_at = self.clock.monotonic() + rest

    def record_empty(self, lanes: Iterable[str], began: float) -> None:
        """Record that these lanes had no due jobs left at `began`, in monotonic seconds."""
        if self.is_engaged:
            self.empty_at.update(dict.fromkeys(lanes, began))
        elif self.empty_at:
            self.empty_at.clear()
