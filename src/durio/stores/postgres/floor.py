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
from collections.abc import Sequence
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
    """Where to look."""

    columns: Columns
    whole: Sequence[str] | None = (
        None  # lanes that are looked at from their head; None: all
    )
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
class LaneFloors:
    """Those of one lane, by rank."""

    patrol: Patrol
    by_rank: dict[int, Floor] = field(default_factory=dict[int, Floor])

    def rank(self, rank: int) -> Floor:
        """Of this rank; the first time it lets everything through."""
        return self.by_rank.setdefault(rank, Floor())

    def firsts(self) -> list[tuple[int, bytes]]:
        """Rank by rank, where to begin."""
        return [(rank, floor.first) for rank, floor in self.by_rank.items()]


@dataclass(slots=True)
class Floors:
    """The floors of one process, in lanes whose claims are slow."""

    clock: Clock
    best: float = BEST_SECONDS_MAX  # seconds per job
    slow: dict[str, int] = field(default_factory=dict[str, int])  # looks in a row
    by_lane: dict[str, LaneFloors] = field(default_factory=dict[str, LaneFloors])

    # --- looking

    def look(self, lanes: Sequence[Lane]) -> Look:
        """Where the next claims begin."""
        if not self.by_lane:
            return self.everything(lanes)
        piece = self._piece(lanes)
        numbers: list[int] = []
        found: list[Span] = []
        whole: list[str] = []
        for number, lane in enumerate(lanes, start=1):
            mine = self.by_lane.get(lane.name)
            if mine is None or mine.patrol.is_calm:
                whole.append(lane.name)
                places = spans({}, None)
            else:
                is_there = piece is not None and piece.lane == lane.name
                places = spans(mine.by_rank, piece if is_there else None)
            numbers += [number] * len(places)
            found += places
        columns = (
            numbers,
            [span.rank for span in found],
            [span.first for span in found],
            [span.end_rank for span in found],
            [span.end for span in found],
        )
        return Look(columns, whole, piece)

    def everything(self, lanes: Sequence[Lane]) -> Look:
        """From the first place of every lane."""
        count = len(lanes)
        if count == 1:
            return ONE_LANE
        lowest = [LOWEST_ID] * count
        numbers = list(range(1, count + 1))
        return Look((numbers, [0] * count, lowest, [RANKS] * count, lowest))

    def _piece(self, lanes: Sequence[Lane]) -> Slice | None:
        """Of the lane that has waited longest for it."""
        known = {lane.name: self.by_lane.get(lane.name) for lane in lanes}
        mine = [floors for floors in known.values() if floors is not None]
        for floors in sorted(mine, key=lambda floors: floors.patrol.due_at):
            piece = floors.patrol.next_piece(floors.firsts())
            if piece is not None and not floors.patrol.is_calm:
                return piece
        return None

    # --- learning

    def learn(
        self,
        look: Look,
        lanes: Sequence[Lane],
        want: int,
        claims: Sequence[Claim],
        seconds: float,
    ) -> None:
        """From how long the server looked, and how far it came."""
        if look.piece is None:
            self._judge(look, lanes, seconds, len(claims))
        elif (mine := self.by_lane.get(look.piece.lane)) is not None:
            if is_through(look.piece, lanes, want, claims):
                mine.patrol.looked(look.piece, seconds, len(self.by_lane))
            else:
                mine.patrol.put_off(look.piece)
        if self.by_lane:
            seen = self._rise(claims)
            self._raise_idle(look, lanes, seen, seconds, is_full=len(claims) >= want)

    def _judge(
        self, look: Look, lanes: Sequence[Lane], seconds: float, jobs: int
    ) -> None:
        """Whether claims are slow, by a look from the head of lanes."""
        if jobs >= JOBS_MIN and look.whole is None:
            self.best = min(self.best, seconds / jobs)
        limit = max(QUICK_SECONDS, SLOW * self.best * max(jobs, JOBS_MIN))
        if seconds <= limit and not self.slow:
            return
        names = [lane.name for lane in lanes] if look.whole is None else look.whole
        for name in names:
            if seconds <= limit:
                self.slow.pop(name, None)
                self.by_lane.pop(name, None)
            else:
                self._note_slow(name)

    def _note_slow(self, name: str) -> None:
        self.slow[name] = self.slow.get(name, 0) + 1
        if name in self.by_lane:
            self.by_lane[name].patrol.is_calm = False
        elif self.slow[name] >= SLOW_LOOKS:
            self.by_lane[name] = LaneFloors(Patrol(name, self.clock))

    def _rise(self, claims: Sequence[Claim]) -> dict[str, tuple[int, int]]:
        """As far as these claims came; jobs and last rank by lane."""
        came: dict[tuple[str, int], tuple[bytes, int]] = {}
        seen: dict[str, tuple[int, int]] = {}
        for claim in claims:
            last, jobs = came.get((claim.lane, claim.rank), (LOWEST_ID, 0))
            came[claim.lane, claim.rank] = (max(last, claim.id), jobs + 1)
        for (lane, rank), (last, jobs) in came.items():
            if lane in self.by_lane:
                self.by_lane[lane].rank(rank).rise(last, jobs)
            count, top = seen.get(lane, (0, 0))
            seen[lane] = (count + jobs, max(top, rank))
        return seen

    def _raise_idle(
        self,
        look: Look,
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
            if mine is None or look.whole is None or name in look.whole:
                continue
            count, top = seen.get(name, (0, 0))
            if count < limit and not is_full and seconds > QUICK_SECONDS:
                top = RANKS
            for rank in range(top):
                if rank not in mine.by_rank:
                    mine.by_rank[rank] = Floor(first)

    def lower(self, lane: str, rank: int, job_id: bytes) -> None:
        """A job was put there: below the floor nobody would see it."""
        mine = self.by_lane.get(lane)
        if mine is not None and rank in mine.by_rank:
            mine.by_rank[rank].fall(job_id)


def is_through(
    piece: Slice, lanes: Sequence[Lane], want: int, claims: Sequence[Claim]
) -> bool:
    """Whether that look came to the end of the piece, or had enough before."""
    in_lane = [claim for claim in claims if claim.lane == piece.lane]
    room = sum(lane.limit for lane in lanes if lane.name == piece.lane)
    if len(claims) < want and len(in_lane) < room:
        return True
    end = (piece.rank, piece.last)
    return any((claim.rank, claim.id) >= end for claim in in_lane)


def floor_below(job_id: bytes) -> bytes:
    """A little before this job."""
    return id_at(time_in(job_id) - MARGIN_MS)


def spans(floors: dict[int, Floor], piece: Slice | None) -> list[Span]:
    """From floor to floor: ranks without one go together. Of one rank also the piece."""
    found: list[Span] = []
    low = 0
    for rank in sorted(floors):
        if low < rank:
            found.append(Span(low, LOWEST_ID, rank, LOWEST_ID))
        first = floors[rank].first
        if piece is not None and piece.rank == rank:
            found.append(Span(rank, piece.first, rank, min(piece.last, first)))
        low = rank + 1
        found.append(Span(rank, first, low, LOWEST_ID))
    if low < RANKS:
        found.append(Span(low, LOWEST_ID, RANKS, LOWEST_ID))
    return found
