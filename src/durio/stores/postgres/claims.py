"""What a claiming call asks for, and what its statements return.

The first row is about the whole call, every other row is a claim.
"""

from collections.abc import Sequence
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from durio.model.job import Claim
from durio.ports.exchange import Lane
from durio.stores.postgres.driver import Row
from durio.stores.postgres.ended_waits import NOTHING_ENDED, WaitsEnded, decode_ended

# After the fields of a Claim, the first row has columns about the whole call.
WIDTH = len(Claim._fields)
TICKET = WIDTH + 5
claim_fields = itemgetter(slice(WIDTH))


class ClaimRequest(NamedTuple):
    """Which lanes a worker claims from, and how many jobs it wants."""

    worker: int
    lanes: list[Lane]
    want: int
    known: list[str] | None

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.lanes]

    @property
    def columns(self) -> tuple[Any, ...]:
        """Lanes, limits, jobs to skip, want and known tasks."""
        names = self.names
        rooms = [min(limit, self.want) for _, limit in self.lanes]
        return (names, rooms, jobs_to_skip(names, rooms), self.want, self.known)


class ClaimResult(NamedTuple):
    """What a claiming statement returns."""

    # False: a job is due; None: see `claim_idle`. Then nothing was written.
    has_done: bool | None
    next_due_seconds: float | None
    claim_scan_seconds: float | None  # how long it took to find the claims
    refused: list[int]  # positions of done outcomes, from 1
    due_scan_seconds: float | None  # how long it took to find due jobs
    claims: list[Claim]  # by rank and id
    ended: WaitsEnded = NOTHING_ENDED  # of done jobs: what has let others go on
    rows: Sequence[Row] = ()  # as they were returned

    def by_place(self) -> list[Claim]:
        """Return the claims with their places in the queue as ids: some are tickets."""
        return [
            claim if row[TICKET] is None else claim._replace(id=UUID(row[TICKET]).bytes)
            for claim, row in zip(self.claims, self.rows[1:], strict=True)
        ]


def parse_claims(rows: Sequence[Row]) -> ClaimResult:
    """Parse the rows: the first is about the call, every other row is a claim."""
    first = rows[0][WIDTH : WIDTH + 6]
    has_done, due, look_seconds, refused, due_seconds, ended = first
    claims = [Claim(*fields) for fields in map(claim_fields, rows[1:])]
    # A blocked job is due at infinity.
    seconds = None if due is None or due == inf else max(0.0, due)
    return ClaimResult(
        has_done,
        seconds,
        look_seconds,
        refused or [],
        due_seconds,
        claims,
        NOTHING_ENDED if ended is None else decode_ended(ended),
        rows,
    )


def in_lane_order(
    claims: list[Claim], lanes: Sequence[Lane], want: int
) -> tuple[list[Claim], bool]:
    """Sort claims as if one lane was claimed after the other; True if a lane may have more."""
    if len(lanes) == 1:
        return claims, len(claims) == min(lanes[0].limit, want)
    by_lane: dict[str, list[Claim]] = {}
    for claim in claims:
        by_lane.setdefault(claim.lane, []).append(claim)
    ordered: list[Claim] = []
    more = False
    for name, limit in lanes:
        room = min(limit, want)
        if room <= 0:
            break
        left = by_lane.get(name, [])
        by_lane[name] = left[room:]
        ordered += left[:room]
        want -= min(room, len(left))
        more = more or len(left) >= room
    for left in by_lane.values():
        ordered += left
    return ordered, more


def jobs_to_skip(names: Sequence[str], rooms: Sequence[int]) -> list[int]:
    """Return for each lane how many jobs its earlier entries in the list may take."""
    if len(set(names)) == len(names):
        return []
    taken: dict[str, int] = {}
    passed: list[int] = []
    for name, room in zip(names, rooms, strict=True):
        passed.append(taken.get(name, 0))
        taken[name] = passed[-1] + room
    return passed
