"""Floors: where to begin looking for ready jobs while somebody keeps old row versions alive.

A claim goes through its lane from the first place on. Places of jobs that were claimed long
ago are gone soon, unless a transaction somewhere in the database is so old that it could
still see them: then every claim walks over all of them, and each walk is longer than the
last. A worker notices that its claims have become slow and remembers how far it came in
each lane and rank: from then on it begins a little before that.

Jobs that come to lie below a floor (a retry, a job that was due, a producer whose commit
took long) are found too: whoever puts one there in this process lowers the floor, and every
now and then a look goes without floors. Such looks take a twentieth of the time at most,
and are never more than half a minute apart.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from durio.model.job import PRIORITY_MAX, Claim
from durio.ports.clock import Clock
from durio.ports.exchange import Lane

SLOW = 4.0  # times the best time per job
SLOW_LOOKS = 3  # in a row: one may be anybody's fault
QUICK_SECONDS = 0.001  # whatever it brought: nothing is slow here
JOBS_MIN = 20  # a smaller batch says nothing about the time per job
REST_FACTOR = 20.0
REST_SECONDS_MIN, REST_SECONDS_MAX = 1.0, 30.0
# Commits do not come in the order of ids: a floor stays behind by so much, or so many.
MARGIN_MS = 1000
MARGIN_JOBS = 2000
LOWEST_ID = bytes(16)
ID_TIME_BYTES = 6

Columns = tuple[list[int], list[int], list[int], list[bytes]]


class Look(NamedTuple):
    """Where to look: which lane, first and last rank, first id in the first rank."""

    columns: Columns
    is_whole: bool


ONE_LANE = Look(([1], [0], [PRIORITY_MAX], [LOWEST_ID]), is_whole=True)


@dataclass(slots=True)
class Floor:
    """How far this process came in one rank of one lane."""

    first: bytes = LOWEST_ID  # where to begin
    newest: deque[tuple[bytes, int]] = field(default_factory=deque[tuple[bytes, int]])
    behind: int = 0  # jobs in `newest`

    def rise(self, last: bytes, jobs: int) -> None:
        """So many were claimed, up to this one."""
        self.newest.append((last, jobs))
        self.behind += jobs
        self.first = max(self.first, floor_below(last))
        while self.behind - self.newest[0][1] >= MARGIN_JOBS:
            passed, jobs = self.newest.popleft()
            self.behind -= jobs
            self.first = max(self.first, passed)


@dataclass(slots=True)
class Floors:
    """The floors of one process, by lane and rank; empty while claims are quick."""

    clock: Clock
    best: float | None = None  # seconds per job
    slow_looks: int = 0
    is_engaged: bool = False
    whole_at: float = 0.0  # when the next look without floors is due
    by_lane: dict[str, dict[int, Floor]] = field(
        default_factory=dict[str, dict[int, Floor]]
    )

    # --- looking

    def look(self, lanes: Sequence[Lane]) -> Look:
        """Where the next claims begin."""
        if not self.is_engaged or self.clock.monotonic() >= self.whole_at:
            return self.everything(lanes)
        numbers: list[int] = []
        found: list[tuple[int, int, bytes]] = []
        for number, lane in enumerate(lanes, start=1):
            places = spans(self.by_lane.get(lane.name, {}))
            numbers += [number] * len(places)
            found += places
        lows = [low for low, _, _ in found]
        highs = [high for _, high, _ in found]
        columns = (numbers, lows, highs, [first for _, _, first in found])
        return Look(columns, is_whole=False)

    def everything(self, lanes: Sequence[Lane]) -> Look:
        """From the first place of every lane."""
        count = len(lanes)
        if count == 1:
            return ONE_LANE
        numbers = list(range(1, count + 1))
        ranks = [0] * count, [PRIORITY_MAX] * count
        return Look((numbers, *ranks, [LOWEST_ID] * count), is_whole=True)

    # --- learning

    def learn(self, look: Look, claims: Sequence[Claim], seconds: float) -> None:
        """From how long the server looked, and how far it came."""
        if look.is_whole:
            self._judge(seconds, len(claims))
            rest = min(max(REST_FACTOR * seconds, REST_SECONDS_MIN), REST_SECONDS_MAX)
            self.whole_at = self.clock.monotonic() + rest
        if self.is_engaged:
            self._rise(claims)

    def _judge(self, seconds: float, jobs: int) -> None:
        """Whether claims are slow, by a look at everything."""
        is_quick = seconds < QUICK_SECONDS
        if jobs >= JOBS_MIN:
            cost = seconds / jobs
            self.best = cost if self.best is None else min(self.best, cost)
            is_quick = is_quick or cost <= SLOW * self.best
        elif not is_quick:
            return
        self.slow_looks = 0 if is_quick else self.slow_looks + 1
        self.is_engaged = self.slow_looks >= SLOW_LOOKS
        if is_quick:
            self.by_lane.clear()

    def _rise(self, claims: Sequence[Claim]) -> None:
        came: dict[tuple[str, int], tuple[bytes, int]] = {}
        for claim in claims:
            last, jobs = came.get((claim.lane, claim.rank), (LOWEST_ID, 0))
            came[claim.lane, claim.rank] = (max(last, claim.id), jobs + 1)
        for (lane, rank), (last, jobs) in came.items():
            floors = self.by_lane.setdefault(lane, {})
            floors.setdefault(rank, Floor()).rise(last, jobs)

    def lower(self, lane: str, rank: int, job_id: bytes) -> None:
        """A job was put there: below the floor nobody would see it."""
        floor = self.by_lane.get(lane, {}).get(rank)
        if floor is not None:
            floor.first = min(floor.first, job_id)


def floor_below(job_id: bytes) -> bytes:
    """A little before this job: ids begin with their time in milliseconds."""
    at = int.from_bytes(job_id[:ID_TIME_BYTES]) - MARGIN_MS
    return max(at, 0).to_bytes(ID_TIME_BYTES) + LOWEST_ID[ID_TIME_BYTES:]


def spans(floors: dict[int, Floor]) -> list[tuple[int, int, bytes]]:
    """First and last rank, and first id: ranks without a floor go together."""
    found: list[tuple[int, int, bytes]] = []
    low = 0
    for rank in sorted(floors):
        if low < rank:
            found.append((low, rank - 1, LOWEST_ID))
        found.append((rank, rank, floors[rank].first))
        low = rank + 1
    if low <= PRIORITY_MAX:
        found.append((low, PRIORITY_MAX, LOWEST_ID))
    return found
