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
from durio.ports.move import JobDigest, JobRow

digest_fields = attrgetter(*JobDigest._fields)


@dataclass
class Comparison:
    """Both sides, compared."""

    jobs: int = 0
    keys: int = 0
    pruned: int = 0  # their retention ended on the way
    other_jobs: int = 0  # jobs of these Apps that came from elsewhere
    differences: list[str] = field(default_factory=list[str])
    digest: str = ""


def job_digest(row: JobRow) -> JobDigest:
    """What must be the same."""
    return JobDigest._make(digest_fields(row))


def compare_job(
    comparison: Comparison, row: JobRow, found: Sequence[JobDigest], now: float
) -> JobDigest | None:
    """Note what differs; what the other side says, but for what time has changed."""
    seal = job_digest(row)
    if not found and is_prunable(row, now):
        comparison.pruned += 1
        return seal
    if len(found) != 1:
        comparison.differences.append(
            f"job {id_text(row.id)} is there {len(found)} times"
        )
        return None
    other = found[0]
    is_due = row.run_at is not None and row.run_at <= now
    if is_due and (row.state, other.state) == (SCHEDULED, READY):
        other = other._replace(state=SCHEDULED)
    if other != seal:
        comparison.differences.append(f"job {id_text(row.id)} is not the same there")
    return other


def is_prunable(row: JobRow, now: float) -> bool:
    """Whether retention may have taken it by now."""
    is_old = row.gone_at is None or row.gone_at <= now
    return row.state >= DONE and (is_old or row.bucket is not None)


def digest_bytes(digest: JobDigest | None) -> bytes:
    """As bytes that say all of it."""
    return msgspec.msgpack.encode(digest)
