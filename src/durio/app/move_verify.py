"""Compare both stores of a move job by job and row by row.

Workers of the new store make due jobs ready and delete expired ones, even in queues that
are still closed. Only these two differences are allowed. Records and logs that have expired
are not compared, because they may be deleted at any time.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from durio.model.ids import id_text
from durio.model.job import DONE, READY, SCHEDULED
from durio.ports.move import (
    ImportJobs,
    JobDigest,
    JobRow,
    MovedRow,
    MovedTable,
    row_key,
)

digest_fields = attrgetter(*JobDigest._fields)


@dataclass
class Comparison:
    """The result of comparing both stores."""

    jobs: int = 0
    keys: int = 0
    rows: Counter[MovedTable] = field(default_factory=Counter[MovedTable])
    pruned: int = 0  # deleted in the target, because their retention ended
    other_jobs: int = 0  # jobs of these Apps in the target that were not moved
    differences: list[str] = field(default_factory=list[str])
    digest: str = ""


def job_digest(row: JobRow) -> JobDigest:
    return JobDigest._make(digest_fields(row))


def compare_job(
    comparison: Comparison, row: JobRow, found: Sequence[JobDigest], now: float
) -> JobDigest | None:
    """Record differences; return the target's digest without the allowed changes."""
    digest = job_digest(row)
    if not found and is_prunable(row, now):
        comparison.pruned += 1
        return digest
    if len(found) != 1:
        comparison.differences.append(
            f"job {id_text(row.id)} is in the new store {len(found)} times"
        )
        return None
    other = found[0]
    is_due = row.run_at is not None and row.run_at <= now
    if is_due and (row.state, other.state) == (SCHEDULED, READY):
        other = other._replace(state=SCHEDULED)
    if other != digest:
        comparison.differences.append(f"job {id_text(row.id)} differs in the new store")
    return other


def is_prunable(row: JobRow, now: float) -> bool:
    """Whether retention may have deleted the job by now."""
    is_old = row.gone_at is None or row.gone_at <= now
    return row.state >= DONE and (is_old or row.bucket is not None)


async def compare_batch(
    comparison: Comparison,
    target: ImportJobs,
    move: str,
    table: MovedTable,
    rows: Sequence[MovedRow],
) -> tuple[bytes, bytes]:
    """Compare rows with the target, and return both for the digests."""
    first, last = row_key(table, rows[0]), row_key(table, rows[-1])
    found, now = await target.taken_rows(move, table, first, last), await target.now()
    ours, theirs = lasting(rows, now), lasting(found, now)
    comparison.rows[table] += len(rows)
    compare_rows(comparison, table, ours, theirs)
    return digest_bytes(ours), digest_bytes(theirs)


def compare_rows(
    comparison: Comparison,
    table: MovedTable,
    ours: Sequence[MovedRow],
    theirs: Sequence[MovedRow],
) -> None:
    if ours != theirs:
        keys = {row_key(table, row) for row in set(ours) ^ set(theirs)}
        comparison.differences += [
            f"{table} {' '.join(map(str, key))} differs in the new store"
            for key in sorted(keys)
        ]


def lasting(rows: Iterable[MovedRow], now: float) -> list[MovedRow]:
    return [row for row in rows if row.expires_at is None or row.expires_at > now]


def digest_bytes(digest: JobDigest | Sequence[MovedRow] | None) -> bytes:
    return msgspec.msgpack.encode(digest)
