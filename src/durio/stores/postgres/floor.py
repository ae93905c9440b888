"""Floors: where to begin looking for ready jobs while somebody keeps old row versions alive.

A claim goes through its lane from the first place on. Places of jobs that were claimed long
ago are gone soon, unless a transaction somewhere in the database is so old that it could
still see them: then every claim walks over all of them, and each walk is longer than the
last. A worker notices that its claims have become slow and remembers how far it came in
each lane and rank: from then on it begins a little before that.

Jobs that come to lie below a floor (a retry, a job that was due, a producer whose commit
took long) are found too: whoever puts one there in this process lowers the floor, and
`patrol.py` goes through all that lies below the floors again and again.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from durio.model.job import PRIORITY_MAX, Claim
from durio.ports.clock import Clock
from durio.ports.exchange import Lane
from durio.stores.postgres.patrol import LOWEST_ID, Patrol, Slice, id_at, time_in

SLOW = 4.0  # times the best time per job
SLOW_LOOKS = 3  # in a row: one may be anybody's fault
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
Columns = tuple[list[int], list[int], list[bytes], list[int], list[bytes]]


class Look(NamedTuple):
    """Where to look, and for how much."""

    columns: Columns
    lanes: Sequence[Lane] = ()
    want: int = 0
    is_whole: bool = True
    piece: Slice | None = None  # of what lies below the floors


class Span(NamedTuple):
    """Places from (rank, first) up to (end_rank, end), without that one."""

    rank: int
    first: bytes
    end_rank: int
    end: bytes


ONE_LANE = Look(([1], [0], [LOWEST_ID], [RANKS], [LOWEST_ID]))


@dataclass(slots=True)
class Floor:
    """How far this process came in one rank of one lane."""

    first: bytes = LOWEST_ID  # where to begin
    newest: deque[tuple[bytes, int]] = field(default_factory=deque[tuple[bytes, int]])
    behind: int = 0  # jobs in `newest`

    def rise(self, last: bytes, jobs: int) -> None:
        """So many were claimed, up to this one."""
        if last < self.first:
            return  # from a piece below
        self.newest.append((last, jobs))
        self.behind += jobs
        self.first = max(self.first, floor_below(last))
        while self.behind - self.newest[0][1] >= MARGIN_JOBS:
            passed, jobs = self.newest.popleft()
            self.behind -= jobs
            self.first = max(self.first, passed)

    def fall(self, job_id: bytes) -> None:
        """Down to this one; how far it once came counts no more."""
        if job_id < self.first:
            self.first = job_id
            self.newest.clear()
            self.behind = 0


@dataclass(slots=True)
class Floors:
    """The floors of one process, by lane and rank; empty while claims are quick."""

    clock: Clock
    patrol: Patrol = field(init=False)
    best: float = BEST_SECONDS_MAX  # seconds per job
    slow_looks: int = 0
    is_engaged: bool = False
    by_lane: dict[str, dict[int, Floor]] = field(
        default_factory=dict[str, dict[int, Floor]]
    )

    def __post_init__(self) -> None:
        self.patrol = Patrol(self.clock)

    # --- looking

    def look(self, lanes: Sequence[Lane], want: int) -> Look:
        """Where the next claims begin."""
        if not self.is_engaged:
            return self.everything(lanes)
        piece = self.patrol.next_piece({lane.name for lane in lanes}, self._firsts())
        if self.patrol.is_calm:
            return self.everything(lanes)
        numbers: list[int] = []
        found: list[Span] = []
        for number, lane in enumerate(lanes, start=1):
            places = spans(lane.name, self.by_lane.get(lane.name, {}), piece)
            numbers += [number] * len(places)
            found += places
        columns = (
            numbers,
            [span.rank for span in found],
            [span.first for span in found],
            [span.end_rank for span in found],
            [span.end for span in found],
        )
        return Look(columns, lanes, want, is_whole=False, piece=piece)

    def everything(self, lanes: Sequence[Lane]) -> Look:
        """From the first place of every lane."""
        count = len(lanes)
        if count == 1:
            return ONE_LANE
        lowest = [LOWEST_ID] * count
        numbers = list(range(1, count + 1))
        return Look((numbers, [0] * count, lowest, [RANKS] * count, lowest))

    def _firsts(self) -> Iterator[tuple[str, int, bytes]]:
        for lane, floors in self.by_lane.items():
            for rank, floor in floors.items():
                yield lane, rank, floor.first

    # --- learning

    def learn(self, look: Look, claims: Sequence[Claim], seconds: float) -> None:
        """From how long the server looked, and how far it came."""
        if look.is_whole:
            self._judge(seconds, len(claims))
        elif look.piece is not None:
            if is_through(look, look.piece, claims):
                self.patrol.looked(look.piece, seconds)
            else:
                self.patrol.put_off(look.piece)
        if self.is_engaged:
            seen = self._rise(claims)
            if not look.is_whole:
                self._raise_idle(look, len(claims), seen, seconds)

    def _judge(self, seconds: float, jobs: int) -> None:
        """Whether claims are slow, by a look at everything."""
        self.patrol.is_calm = False
        if jobs >= JOBS_MIN:
            self.best = min(self.best, seconds / jobs)
        limit = max(QUICK_SECONDS, SLOW * self.best * max(jobs, JOBS_MIN))
        self.slow_looks = self.slow_looks + 1 if seconds > limit else 0
        self.is_engaged = self.slow_looks >= SLOW_LOOKS
        if self.by_lane and not self.is_engaged:
            self.by_lane.clear()
            self.patrol = Patrol(self.clock)

    def _rise(self, claims: Sequence[Claim]) -> dict[str, tuple[int, int]]:
        """As far as these claims came; jobs and last rank by lane."""
        came: dict[tuple[str, int], tuple[bytes, int]] = {}
        seen: dict[str, tuple[int, int]] = {}
        for claim in claims:
            last, jobs = came.get((claim.lane, claim.rank), (LOWEST_ID, 0))
            came[claim.lane, claim.rank] = (max(last, claim.id), jobs + 1)
        for (lane, rank), (last, jobs) in came.items():
            floors = self.by_lane.setdefault(lane, {})
            floors.setdefault(rank, Floor()).rise(last, jobs)
            count, top = seen.get(lane, (0, 0))
            seen[lane] = (count + jobs, max(top, rank))
        return seen

    def _raise_idle(
        self, look: Look, jobs: int, seen: dict[str, tuple[int, int]], seconds: float
    ) -> None:
        """Ranks where nothing was left are not gone through again either."""
        first = id_at(int(self.clock.now() * 1000) - IDLE_MARGIN_MS)
        for name, limit in look.lanes:
            count, top = seen.get(name, (0, 0))
            if count < limit and jobs < look.want and seconds > QUICK_SECONDS:
                top = RANKS
            floors = self.by_lane.setdefault(name, {})
            for rank in range(top):
                if rank not in floors:
                    floors[rank] = Floor(first)

    def lower(self, lane: str, rank: int, job_id: bytes) -> None:
        """A job was put there: below the floor nobody would see it."""
        floor = self.by_lane.get(lane, {}).get(rank)
        if floor is not None:
            floor.fall(job_id)


def is_through(look: Look, piece: Slice, claims: Sequence[Claim]) -> bool:
    """Whether that look came to the end of the piece, or had enough before."""
    in_lane = [claim for claim in claims if claim.lane == piece.lane]
    room = sum(lane.limit for lane in look.lanes if lane.name == piece.lane)
    if len(claims) < look.want and len(in_lane) < room:
        return True
    end = (piece.rank, piece.last)
    return any((claim.rank, claim.id) >= end for claim in in_lane)


def floor_below(job_id: bytes) -> bytes:
    """A little before this job."""
    return id_at(time_in(job_id) - MARGIN_MS)


def spans(lane: str, floors: dict[int, Floor], piece: Slice | None) -> list[Span]:
    """From floor to floor: ranks without one go together. Of one rank also the piece."""
    found: list[Span] = []
    low = 0
    for rank in sorted(floors):
        if low < rank:
            found.append(Span(low, LOWEST_ID, rank, LOWEST_ID))
        first = floors[rank].first
        if piece is not None and (piece.lane, piece.rank) == (lane, rank):
            found.append(Span(rank, piece.first, rank, min(piece.last, first)))
        low = rank + 1
        found.append(Span(rank, first, low, LOWEST_ID))
    if low < RANKS:
        found.append(Span(low, LOWEST_ID, RANKS, LOWEST_ID))
    return found
