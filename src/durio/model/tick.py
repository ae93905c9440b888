"""The tick of a schedule that made a job, as it is stored with the options of the job."""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple

from durio.model.ids import uuid7


class TickPlace(NamedTuple):
    """Which tick of which schedule a job was made by."""

    schedule: str  # name of the schedule
    due_at: float  # seconds since 1970
    backfill: str | None = None  # id of the backfill; None: the schedule itself


@dataclass(frozen=True, slots=True)
class Tick:
    """The tick of a schedule that made a job: `ctx.tick`."""

    __module__ = "durio.schedules"

    schedule: str  # name of the schedule
    due_at: datetime  # when the tick was due, in UTC; the job may start later
    is_backfill: bool = False  # whether a backfill made it, for a time in the past


def tick_of(place: TickPlace | None) -> Tick | None:
    """Return a tick as tasks see it."""
    if place is None:
        return None
    due_at = datetime.fromtimestamp(place.due_at, UTC)
    return Tick(place.schedule, due_at, place.backfill is not None)


def tick_id(namespace: str, place: TickPlace, milliseconds: int) -> bytes:
    """Return the id of the job of a tick.

    Its time is the present and not that of the tick, so that ticks that are made up for do
    not overtake jobs that wait.
    """
    text = f"{namespace}\n{place.schedule}\n{place.due_at!r}\n{place.backfill or ''}"
    bits = int.from_bytes(blake2b(text.encode(), digest_size=16).digest())
    return uuid7(milliseconds, bits >> 64, bits)
