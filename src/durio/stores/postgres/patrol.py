"""Rounds below the floors: every place there is looked at again, a slice at a time.

One look at all places below the floors would take seconds after some minutes of full load
under an old snapshot. So each look of a worker takes one slice with it at most, and slices
are cut by the time in their ids until each takes a few hundredths of a second. Rounds take a
twentieth of the time, and more when a round would last longer than half a minute; but never
more than a fifth: then a round takes as long as it takes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from durio.ports.clock import Clock

SLICE_SECONDS = 0.03  # a slice that takes longer is cut
MERGED_SECONDS = SLICE_SECONDS / 8  # one that takes less goes with the one before
SLICES_MAX = 1000  # in one rank of one lane
CUTS = 22  # a second before the end, two, four, ... 24 days
REST_FACTOR_MIN, REST_FACTOR_MAX = 4.0, 20.0
ROUND_SECONDS = 20.0  # what a round may take, if it can
REST_SECONDS = 1.0  # between two rounds
# A round as quick as this one: perhaps the old row versions are gone.
CALM_SECONDS = 0.02
LOWEST_ID = bytes(16)
ID_TIME_BYTES = 6


class Slice(NamedTuple):
    """Places in one rank of one lane, from the first id up to the last, without it."""

    lane: str
    rank: int
    first: bytes
    last: bytes


@dataclass(slots=True)
class Patrol:
    """The rounds of one process in one lane."""

    lane: str
    clock: Clock
    # Where the slices of each rank begin.
    starts: dict[int, list[bytes]] = field(default_factory=dict[int, list[bytes]])
    left: list[Slice] = field(default_factory=list[Slice])  # of this round
    seconds: float | None = None  # that the looks of this round took
    rest_factor: float = REST_FACTOR_MAX
    due_at: float = 0.0
    is_calm: bool = False  # the last round was quick

    def next_piece(self, floors: Iterable[tuple[int, bytes]]) -> Slice | None:
        """What the next look takes with it, below these floors; None: nothing."""
        if self.clock.monotonic() < self.due_at:
            return None
        if not self.left:
            self._begin(floors)
            return None
        return self.left[0]

    def looked(self, piece: Slice, seconds: float, patrols: int) -> None:
        """That look took so long, this slice and all; so many lanes have rounds."""
        if piece not in self.left:
            return  # another look had it as well
        self.left.remove(piece)
        self.seconds = (self.seconds or 0.0) + seconds
        self._adjust(piece, seconds)
        self.due_at = self.clock.monotonic() + self.rest_factor * patrols * seconds

    def put_off(self, piece: Slice) -> None:
        """That look had enough before it came through: others first, then again."""
        if piece in self.left:
            self.left.remove(piece)
            self.left.append(piece)

    def _begin(self, floors: Iterable[tuple[int, bytes]]) -> None:
        """A round, in a while: all that lies below these ids, by rank."""
        if self.seconds is not None:
            self.is_calm = self.seconds < CALM_SECONDS
            factor = ROUND_SECONDS / max(self.seconds, CALM_SECONDS) - 1
            self.rest_factor = min(max(factor, REST_FACTOR_MIN), REST_FACTOR_MAX)
        self.seconds = None
        self.left = [
            each for rank, floor in floors for each in self._slices(rank, floor)
        ]
        self.due_at = self.clock.monotonic() + REST_SECONDS

    def _slices(self, rank: int, floor: bytes) -> list[Slice]:
        whole = [LOWEST_ID, *cuts(LOWEST_ID, floor)]
        starts = self.starts.setdefault(rank, whole)
        below = starts[: bisect_left(starts, floor)]
        ends = zip(below, [*below[1:], floor], strict=True)
        return [Slice(self.lane, rank, first, last) for first, last in ends]

    def _adjust(self, piece: Slice, seconds: float) -> None:
        starts = self.starts[piece.rank]
        place = bisect_right(starts, piece.first) - 1
        if seconds > SLICE_SECONDS:
            room = max(SLICES_MAX - len(starts), 0)
            starts[place + 1 : place + 1] = cuts(piece.first, piece.last)[:room]
        elif seconds < MERGED_SECONDS and place > 0:
            del starts[place]


def cuts(first: bytes, last: bytes) -> list[bytes]:
    """Narrow towards the end, where most of it lies that was claimed lately."""
    ends = time_in(last)
    places = [id_at(ends - 1000 * 2**power) for power in reversed(range(CUTS))]
    return [place for place in places if place > first]


def time_in(job_id: bytes) -> int:
    """Ids begin with the milliseconds at which they were made."""
    return int.from_bytes(job_id[:ID_TIME_BYTES])


def id_at(milliseconds: int) -> bytes:
    """The lowest id of that time."""
    return max(milliseconds, 0).to_bytes(ID_TIME_BYTES) + LOWEST_ID[ID_TIME_BYTES:]
