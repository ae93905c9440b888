"""Both sides of a move, job by job: what must be the same, and what time alone may change.

Workers of the new store make due jobs ready and end retention, also in queues that are
still shut. Nothing else may differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from durio.model.ids import id_text
from durio.model.job import DONE, READY, SCHEDULED
from durio.ports.move import Parcel, Seal

sealed = attrgetter(*Seal._fields)


@dataclass
class Verdict:
    """Both sides, compared."""

    jobs: int = 0
    keys: int = 0
    pruned: int = 0  # their retention ended on the way
    strangers: int = 0  # jobs of these Apps that came from elsewhere
    wrong: list[str] = field(default_factory=list[str])
    digest: str = ""


def seal_of(parcel: Parcel) -> Seal:
    """What must be the same."""
    return Seal._make(sealed(parcel))


def compared(
    verdict: Verdict, parcel: Parcel, there: Sequence[Seal], now: float
) -> Seal | None:
    """Note what differs; what the other side says, but for what time has changed."""
    seal = seal_of(parcel)
    if not there and is_prunable(parcel, now):
        verdict.pruned += 1
        return seal
    if len(there) != 1:
        verdict.wrong.append(f"job {id_text(parcel.id)} is there {len(there)} times")
        return None
    other = there[0]
    is_due = parcel.run_at is not None and parcel.run_at <= now
    if is_due and (parcel.state, other.state) == (SCHEDULED, READY):
        other = other._replace(state=SCHEDULED)
    if other != seal:
        verdict.wrong.append(f"job {id_text(parcel.id)} is not the same there")
    return other


def is_prunable(parcel: Parcel, now: float) -> bool:
    """Whether retention may have taken it by now."""
    is_old = parcel.gone_at is None or parcel.gone_at <= now
    return parcel.state >= DONE and (is_old or parcel.bucket is not None)


def digested(seal: Seal | None) -> bytes:
    """As bytes that say all of it."""
    return msgspec.msgpack.encode(seal)
