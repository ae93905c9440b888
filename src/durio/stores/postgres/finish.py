"""Record outcomes, each fenced by (id, claim_no, worker).

Progress updates are written first, so that the last progress of a job is not refused
because its end is in the same call. Then one statement records all done jobs, and one more
lets all other jobs leave running.

The fence refuses two kinds of outcomes: those that an earlier call stored but whose reply
was lost (`already_stored`), and those of a worker that was rescued.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import filterfalse
from typing import Any, NamedTuple

from durio.model.job import CANCELLED, READY
from durio.model.outcome import Outcome, OutcomeKind, is_ended_by
from durio.ports.exchange import Rejected
from durio.stores.postgres.driver import Row
from durio.stores.postgres.exit import (
    by_fence,
    done_columns,
    is_progress_update,
    leave_running,
    progress_update_columns,
)
from durio.stores.postgres.keys import free_at_end
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

FINISH_JOBS = statement("finish_jobs")
RECORD_PROGRESS_UPDATES = statement("write_progress_and_alone")
FIND_FINAL = statement("read_claim_state")
IS_REGISTERED = statement("is_registered")
LOCK_RUNNING = statement("lock_finishing_jobs")

# `tx.rows` or `connections.read`: runs one statement.
ReadRows = Callable[..., Awaitable[Sequence[Row]]]


class PostgresRecordedOutcomes(NamedTuple):
    rejected: list[Rejected]
    cancelled: list[bytes]
    ready_again: list[tuple[str, int, bytes]]  # lane, rank, id


async def record_outcomes(
    tx: PostgresTransaction, worker: int, outcomes: Sequence[Outcome]
) -> PostgresRecordedOutcomes:
    """Record progress updates, then done jobs, then all other ends."""
    others = [outcome for outcome in outcomes if outcome.kind != OutcomeKind.DONE]
    done = [outcome for outcome in outcomes if outcome.kind == OutcomeKind.DONE]
    notes = list(filter(is_progress_update, others))
    firm = {outcome.id for outcome in outcomes if outcome.kind != OutcomeKind.PROGRESS}
    if firm and (notes or (done and others)):
        # All transactions lock in one order: a rescue locks jobs by id, whatever their ends
        # are. Progress updates alone need no lock.
        await tx.rows(LOCK_RUNNING, sorted(firm))
    refused = await record_progress_updates(tx, worker, notes)
    refused += await record_done(tx, worker, by_fence(done))
    cancelled: list[bytes] = []
    back: list[tuple[str, int, bytes]] = []
    ends = by_fence(list(filterfalse(is_progress_update, others)))
    if ends:
        ways = await leave_running(tx, [worker] * len(ends), ends, except_worker=worker)
        for outcome, passed in zip(ends, ways, strict=True):
            if passed is None:
                refused.append(outcome)
            elif passed.state == CANCELLED and outcome.kind != OutcomeKind.CANCEL:
                cancelled.append(outcome.id)
            elif passed.state == READY:
                back.append((passed.lane, passed.rank, outcome.id))
    rejected: list[Rejected] = []
    if refused:
        rejected = await classify_refused(tx.rows, worker, refused, outcomes)
    return PostgresRecordedOutcomes(rejected, cancelled, back)


async def record_progress_updates(
    tx: PostgresTransaction, worker: int, updates: Sequence[Outcome]
) -> list[Outcome]:
    """Write progress, and the mark of a job that will run alone; return the refused."""
    if not updates:
        return []
    rows = await tx.rows(
        RECORD_PROGRESS_UPDATES, *progress_update_columns(updates), worker
    )
    taken = {(job_id, claim_no) for job_id, claim_no in rows}
    return [note for note in updates if (note.id, note.claim_no) not in taken]


async def record_done(
    tx: PostgresTransaction, worker: int, done: Sequence[Outcome]
) -> list[Outcome]:
    """Write state, result and end time, and free keys, together; return the refused."""
    if not done:
        return []
    stays = tx.retention.done_seconds
    rows = await tx.rows(FINISH_JOBS, *done_columns(done), worker, stays, tx.injected)
    taken = {number for number, _, _ in rows}
    free_at_end(tx, [(key, job_id) for _, job_id, key in rows if key is not None])
    return [o for number, o in enumerate(done, start=1) if number not in taken]


async def classify_refused(
    read: ReadRows, worker: int, refused: Sequence[Outcome], outcomes: Sequence[Outcome]
) -> list[Rejected]:
    """Tell which refused outcomes an earlier call stored, and which were fenced off.

    A rescue marks or deletes the worker's row together with its first job. So while the row
    exists unmarked, no other worker had the jobs, and the outcome was stored. Without the
    row, only the final job shows it. The result is in the order of `outcomes`.
    """
    places = {id(outcome): place for place, outcome in enumerate(outcomes)}
    named = sorted(refused, key=lambda outcome: places[id(outcome)])
    if await read(IS_REGISTERED, worker):
        return [Rejected(o.id, o.claim_no, already_stored=True) for o in named]
    rows = await read(FIND_FINAL, [outcome.id for outcome in named])
    ends: dict[tuple[Any, ...], Row] = {(row[0], row[1]): row for row in rows}
    return [
        Rejected(
            o.id,
            o.claim_no,
            already_stored=is_stored_end(o, ends.get((o.id, o.claim_no))),
        )
        for o in named
    ]


def is_stored_end(outcome: Outcome, end: Row | None) -> bool:
    """Whether this outcome ended the job; a rescuer or a child records a loss."""
    if end is None:
        return False
    _, _, state, reason = end
    return is_ended_by(outcome, state, reason)
