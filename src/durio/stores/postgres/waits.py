"""Jobs that wait for logs: rows of `waits` beside their rows in `sched`, due at infinity.

A job is always stored as blocked. `logs.write_entries` looks at its log at the end of the
transaction, and lets it go if the log is long enough. So no append is missed.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from durio.model.ties import load_ties
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import LogRow, PostgresTransaction

INSERT_WAITS = statement("insert_wait")
STOP_WAITING = statement("stop_waiting")


class NewWait(NamedTuple):
    """What a blocked job waits for; the delay counts from the end of the wait."""

    id: bytes
    log: str
    above: int
    delay_seconds: float = 0.0
    run_at: float | None = None  # and not before this time


def waits_of(rows: Iterable[tuple[bytes, str | None]]) -> list[NewWait]:
    """Return what these jobs wait for by their ties, for those that do."""
    found: list[NewWait] = []
    for job_id, ties in rows:
        wait = None if ties is None else load_ties(ties).wait
        if wait is not None:
            found.append(NewWait(job_id, wait.log, wait.above))
    return found


async def insert_waits(tx: PostgresTransaction, waits: Sequence[NewWait]) -> None:
    """Let these blocked jobs wait; `write_entries` looks whether they have to."""
    tx.entries += [LogRow(log) for log in dict.fromkeys(wait.log for wait in waits)]
    await write_waits(tx, waits)


async def write_waits(tx: PostgresTransaction, waits: Sequence[NewWait]) -> None:
    if waits:
        await tx.rows(
            INSERT_WAITS,
            [wait.log for wait in waits],
            [wait.above for wait in waits],
            [wait.id for wait in waits],
            [float(wait.delay_seconds) for wait in waits],
            [wait.run_at for wait in waits],
        )


async def stop_waiting(tx: PostgresTransaction, waits: Sequence[NewWait]) -> None:
    """Delete the waits of blocked jobs that end."""
    if waits:
        await tx.rows(
            STOP_WAITING,
            [wait.log for wait in waits],
            [wait.above for wait in waits],
            [wait.id for wait in waits],
        )
