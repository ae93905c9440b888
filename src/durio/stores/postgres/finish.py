"""Record outcomes, each fenced by (id, claim_no, worker).

Progress updates are written first, so that the last progress of a job is not refused
because its end is in the same call. Then one statement records all done jobs, and one more
lets all other jobs leave running. A done job with effects is recorded by itself: if its
effects cannot be written, only it is undone.

The fence refuses two kinds of outcomes: those that an earlier call stored but whose reply
was lost (`already_stored`), and those of a worker that was rescued.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import filterfalse
from typing import Any, NamedTuple

from durio.model.job import CANCELLED, DONE, READY
from durio.model.outcome import Outcome, OutcomeKind, is_ended_by
from durio.model.ties import EndedJob, entry_body
from durio.ports.conflicts import Conflict, EffectsRefused
from durio.ports.exchange import Rejected
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.driver import Row
from durio.stores.postgres.effects import undone_if_refused, write_effects
from durio.stores.postgres.exit import (
    by_fence,
    done_columns,
    is_progress_update,
    leave_running,
    progress_update_columns,
)
from durio.stores.postgres.gates import give_back
from durio.stores.postgres.keys import free_at_end
from durio.stores.postgres.logs import collect_end
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

FINISH_JOBS = statement("finish_jobs")
RECORD_PROGRESS_UPDATES = statement("write_progress_and_alone")
FIND_FINAL = statement("read_claim_state")
IS_REGISTERED = statement("is_registered")
LOCK_RUNNING = statement("lock_finishing_jobs")

# `tx.rows` or `connections.read`: runs one statement.
ReadRows = Callable[..., Awaitable[Sequence[Row]]]
# By job: why its effects could not be written.
OutcomeConflicts = dict[bytes, Conflict]


class PostgresRecordedOutcomes(NamedTuple):
    rejected: list[Rejected]
    cancelled: list[bytes]
    ready_again: list[tuple[str, int, bytes]]  # lane, rank, id


async def record_outcomes(
    tx: PostgresTransaction,
    context: PostgresContext,
    worker: int,
    outcomes: Sequence[Outcome],
) -> PostgresRecordedOutcomes:
    """Record progress updates, then done jobs, then all other ends.

    The caller has called `lock_for_effects` if an outcome has effects, and calls
    `write_entries` afterwards. Raises StaleRead to start again.
    """
    others = [outcome for outcome in outcomes if outcome.kind != OutcomeKind.DONE]
    done = [outcome for outcome in outcomes if outcome.kind == OutcomeKind.DONE]
    alone = [outcome for outcome in done if outcome.effects is not None]
    notes = list(filter(is_progress_update, others))
    firm = {outcome.id for outcome in outcomes if outcome.kind != OutcomeKind.PROGRESS}
    if firm and (notes or alone or (done and others)):
        # All transactions lock in one order: a rescue locks jobs by id, whatever their ends
        # are. Progress updates alone need no lock.
        await tx.rows(LOCK_RUNNING, sorted(firm))
    refused = await record_progress_updates(tx, worker, notes)
    plain = [outcome for outcome in done if outcome.effects is None]
    refused += await record_done(tx, worker, by_fence(plain))
    conflicts: OutcomeConflicts = {}
    for outcome in alone:
        refused += await record_alone(tx, context, worker, outcome, conflicts)
    ends = by_fence(list(filterfalse(is_progress_update, others)))
    left = await record_ends(tx, worker, ends)
    refused += left.refused
    rejected: list[Rejected] = []
    if refused:
        rejected = await classify_refused(tx.rows, worker, refused, outcomes, conflicts)
    return PostgresRecordedOutcomes(rejected, left.cancelled, left.ready_again)


class RecordedEnds(NamedTuple):
    refused: list[Outcome]
    cancelled: list[bytes]
    ready_again: list[tuple[str, int, bytes]]


async def record_ends(
    tx: PostgresTransaction, worker: int, ends: Sequence[Outcome]
) -> RecordedEnds:
    """Let jobs leave running that are not done."""
    left = RecordedEnds([], [], [])
    if not ends:
        return left
    ways = await leave_running(tx, [worker] * len(ends), ends, except_worker=worker)
    for outcome, passed in zip(ends, ways, strict=True):
        if passed is None:
            left.refused.append(outcome)
        elif passed.state == CANCELLED and outcome.kind != OutcomeKind.CANCEL:
            left.cancelled.append(outcome.id)
        elif passed.state == READY:
            left.ready_again.append((passed.lane, passed.rank, outcome.id))
    return left


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
    taken: set[int] = set()
    freed: list[tuple[bytes, bytes]] = []
    for number, key, ties, held in rows:
        taken.add(number)
        outcome = done[int(number) - 1]
        if key is not None:
            freed.append((key, outcome.id))
        if ties is not None:
            give_back(tx, ties, held)
        if ties is not None and not outcome.is_quiet:
            body = entry_body(DONE, outcome.result, None)
            collect_end(tx, EndedJob(outcome.id, DONE, ties, body))
    free_at_end(tx, freed)
    return [o for number, o in enumerate(done, start=1) if number not in taken]


async def record_alone(
    tx: PostgresTransaction,
    context: PostgresContext,
    worker: int,
    outcome: Outcome,
    conflicts: OutcomeConflicts,
) -> list[Outcome]:
    """Write a done outcome and its effects, or neither; return it if it is refused."""
    try:
        async with undone_if_refused(tx):
            refused = await record_done(tx, worker, [outcome])
            if not refused and outcome.effects is not None:
                await write_effects(tx, context, outcome.effects)
            return refused
    except EffectsRefused as error:
        conflicts[outcome.id] = error.conflict
        return [outcome]


async def classify_refused(
    read: ReadRows,
    worker: int,
    refused: Sequence[Outcome],
    outcomes: Sequence[Outcome],
    conflicts: OutcomeConflicts | None = None,
) -> list[Rejected]:
    """Tell which refused outcomes an earlier call stored, and which were fenced off.

    A rescue marks or deletes the worker's row together with its first job. So while the row
    exists unmarked, no other worker had the jobs, and the outcome was stored. Without the
    row, only the final job shows it. The result is in the order of `outcomes`. An outcome
    with a conflict is neither: its job is still running.
    """
    places = {id(outcome): place for place, outcome in enumerate(outcomes)}
    named = sorted(refused, key=lambda outcome: places[id(outcome)])
    why = conflicts or {}
    is_registered = bool(await read(IS_REGISTERED, worker))
    ends: dict[tuple[Any, ...], Row] = {}
    if not is_registered:
        rows = await read(FIND_FINAL, [outcome.id for outcome in named])
        ends = {(row[0], row[1]): row for row in rows}
    return [
        Rejected(
            o.id,
            o.claim_no,
            already_stored=o.id not in why
            and (is_registered or is_stored_end(o, ends.get((o.id, o.claim_no)))),
            conflict=why.get(o.id),
        )
        for o in named
    ]


def is_stored_end(outcome: Outcome, end: Row | None) -> bool:
    """Whether this outcome ended the job; a rescuer or a child records a loss."""
    if end is None:
        return False
    _, _, state, reason = end
    return is_ended_by(outcome, state, reason)
