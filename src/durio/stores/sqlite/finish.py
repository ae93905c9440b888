"""Record outcomes, each fenced by (id, claim_no, worker).

The common case, hundreds of done jobs, is one statement: if as many rows changed as were
sent, all were accepted. Otherwise it is rolled back and each
job is finished by itself. Progress updates are written first, so that the last progress of
a job is not refused because its end is in the same call.

The fence refuses two kinds of outcomes: those that an earlier call stored but whose reply
was lost (`already_stored`), and those of a worker that was rescued.
"""

from collections.abc import Iterable, Sequence
from itertools import filterfalse
from typing import Any, NamedTuple

import msgspec

from durio.model.job import CANCELLED, DONE
from durio.model.outcome import Outcome, OutcomeKind, is_ended_by
from durio.model.ties import EndedJob, entry_body
from durio.ports.conflicts import Conflict
from durio.ports.exchange import Rejected
from durio.stores.sqlite.effects import with_effects
from durio.stores.sqlite.exit import keeps_nothing, leave_running
from durio.stores.sqlite.gate_upkeep import change_gates, pass_changed
from durio.stores.sqlite.gates import leave_gates
from durio.stores.sqlite.keys import free_at_end, free_for_good
from durio.stores.sqlite.logs import append_ends, extend_waits
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

FINISH_PACKED = statement("finish_packed")
READ_TIES_OF = statement("read_ties_of")
FINISH_DONE = statement("finish_done")
FINISH_WITHOUT_TRACE = statement("finish_without_trace")
WRITE_PROGRESS = statement("write_progress")
WRITE_TIES = statement("write_ties")
MARK_ALONE = statement("mark_alone")
READ_CLAIM_STATE = statement("read_claim_state")
IS_REGISTERED = statement("is_registered")

PACKED_BYTES_MAX = 64 << 20  # of results; SQLite refuses a text of more than 1 GB


# By job: why its effects could not be written.
OutcomeConflicts = dict[bytes, Conflict]


class EndedTies(NamedTuple):
    """Jobs with ties that are done: entries for logs, and their gates."""

    entries: list[EndedJob]
    gated: list[tuple[int, str]]  # seq, ties


class SqliteRecordedOutcomes(NamedTuple):
    rejected: list[Rejected]
    cancelled: list[bytes]


def record_outcomes(
    tx: SqliteTransaction, worker: int, outcomes: Sequence[Outcome]
) -> SqliteRecordedOutcomes:
    """Record progress updates, then done jobs, then all other ends."""
    done = [outcome for outcome in outcomes if outcome.kind == OutcomeKind.DONE]
    refused: list[Outcome] = []
    conflicts: OutcomeConflicts = {}
    cancelled: list[bytes] = []
    others: list[Outcome] = []
    if len(done) < len(outcomes):
        others = [outcome for outcome in outcomes if outcome.kind != OutcomeKind.DONE]
        refused += record_progress_updates(
            tx, worker, filter(is_progress_update, others)
        )
    if done:
        refused += record_done(tx, worker, done, conflicts)
    for outcome in filterfalse(is_progress_update, others):
        passed = leave_running(tx, worker, outcome, except_worker=worker)
        if passed is None:
            refused.append(outcome)
        elif passed.state == CANCELLED and outcome.kind != OutcomeKind.CANCEL:
            cancelled.append(outcome.id)
    rejected = classify_refused(tx, worker, refused, conflicts) if refused else []
    return SqliteRecordedOutcomes(rejected, cancelled)


def is_progress_update(outcome: Outcome) -> bool:
    """Whether the job continues to run after this outcome."""
    return outcome.kind in (OutcomeKind.PROGRESS, OutcomeKind.ALONE)


def record_progress_updates(
    tx: SqliteTransaction, worker: int, updates: Iterable[Outcome]
) -> list[Outcome]:
    """Write progress, and the mark of a job that will run alone; return the refused."""
    refused: list[Outcome] = []
    for note in updates:
        fence: tuple[Any, ...] = (note.id, note.claim_no, worker)
        if note.kind == OutcomeKind.PROGRESS:
            taken = tx.db.rows(WRITE_PROGRESS, (*fence, note.progress))
        else:
            taken = tx.db.rows(MARK_ALONE, fence)
        if not taken:
            refused.append(note)
    return refused


def record_done(
    tx: SqliteTransaction,
    worker: int,
    done: list[Outcome],
    conflicts: OutcomeConflicts,
) -> list[Outcome]:
    """Write state, result and end time, and free keys, together; return the refused."""
    quick, ended = finish_quickly(tx, worker, done)
    refused: list[Outcome] = []
    if len(quick) < len(done):
        for outcome in done:
            if outcome.id in quick:
                continue
            tx.special.discard(outcome.id)
            if outcome.effects is not None:
                is_taken = finish_with_effects(tx, worker, outcome, conflicts)
            else:
                is_taken = write_done(tx, worker, outcome, ended)
            if not is_taken:
                refused.append(outcome)
    settle_ends(tx, ended)
    return refused


def settle_ends(tx: SqliteTransaction, ended: EndedTies) -> None:
    if ended.entries:
        append_ends(tx, ended.entries)
    if ended.gated:
        leave_gates(tx, ended.gated)


def finish_quickly(
    tx: SqliteTransaction, worker: int, done: list[Outcome]
) -> tuple[set[bytes], EndedTies]:
    """Finish what one statement can finish; return its ids, and the jobs with ties."""
    ended = EndedTies([], [])
    special = tx.special
    usual = [o for o in done if o.keep is None and o.effects is None]
    plain = [o for o in usual if o.id not in special]
    quick: set[bytes] = set()
    if plain and finish_packed(tx, worker, plain, has_ties=False):
        quick = {o.id for o in plain}
    if len(plain) == len(usual):
        return quick, ended
    # Special jobs have a key or ties.
    others = {o.id: o for o in usual if o.id in special and not o.is_quiet}
    ties = read_ties(tx, list(others.values()))
    tied = [others[job_id] for job_id in ties]
    if not tied or not finish_packed(tx, worker, tied, has_ties=True):
        return quick, ended
    special.difference_update(ties)
    for each in tied:
        seq, text = ties[each.id]
        body = entry_body(DONE, each.result, None)
        ended.entries.append(EndedJob(each.id, DONE, text, body))
        ended.gated.append((seq, text))
    return quick | ties.keys(), ended


def read_ties(
    tx: SqliteTransaction, done: Sequence[Outcome]
) -> dict[bytes, tuple[int, str]]:
    """Return seq and ties of those that have ties, and no key."""
    numbers = msgspec.json.encode([0] * len(done)).decode()
    rows = tx.db.rows(READ_TIES_OF, (ids(done), numbers))
    return {job_id: (seq, ties) for job_id, seq, ties in rows}


def finish_packed(
    tx: SqliteTransaction, worker: int, done: Sequence[Outcome], *, has_ties: bool
) -> bool:
    """Finish all jobs, or none; the caller appends their entries.

    Return False if one was refused, has a key or other ties than expected, or has a result
    that is not UTF-8, and if the results are large.
    """
    alike: dict[tuple[int, float], list[Outcome]] = {}
    for outcome in done:
        alike.setdefault((outcome.claim_no, outcome.result_seconds), []).append(outcome)
    now, gone_at = tx.now, tx.now + tx.retention.done_seconds
    if sum(len(o.result) for o in done if o.result is not None) > PACKED_BYTES_MAX:
        return False
    try:
        groups = [
            (
                *(ids(some), claim_no, worker, now, packed(some)),
                *(now + seconds, gone_at, has_ties),
            )
            for (claim_no, seconds), some in alike.items()
        ]
    except UnicodeDecodeError:
        return False
    tx.db.rows("savepoint finishing")
    changed = tx.db.changed_by_many(FINISH_PACKED, groups)
    if changed != len(done):
        tx.db.rows("rollback to finishing")
    tx.db.rows("release finishing")
    return changed == len(done)


def ids(outcomes: Sequence[Outcome]) -> bytes:
    return b"".join([outcome.id for outcome in outcomes])


def packed(outcomes: Sequence[Outcome]) -> str:
    """Return the results as a JSON array of strings."""
    results = [None if o.result is None else o.result.decode() for o in outcomes]
    return msgspec.json.encode(results).decode()


def finish_with_effects(
    tx: SqliteTransaction, worker: int, outcome: Outcome, conflicts: OutcomeConflicts
) -> bool:
    """Finish one job together with its effects; return False if it was refused."""
    found: list[Conflict] = []

    def finish() -> bool:
        ended = EndedTies([], [])
        is_taken = write_done(tx, worker, outcome, ended)
        settle_ends(tx, ended)
        return is_taken

    # `write_done` extends waits: after the entries of this job they might be over. It changes
    # gates too: before another job takes the place of this one.
    effects = outcome.effects and outcome.effects._replace(extends=(), gates=())
    taken = with_effects(tx, effects, finish, found)
    if found:
        conflicts[outcome.id] = found[0]
    return bool(taken)


def write_done(
    tx: SqliteTransaction, worker: int, outcome: Outcome, ended: EndedTies
) -> bool:
    """Finish one job and free its key; collect it in `ended` if it has ties."""
    fence = (outcome.id, outcome.claim_no, worker)
    if keeps_nothing(outcome.keep):
        rows = tx.db.rows(FINISH_WITHOUT_TRACE, fence)
    else:
        seconds, count, bucket = outcome.keep or (tx.retention.done_seconds, None, None)
        until = tx.now + outcome.result_seconds
        ends = (tx.now, outcome.result, until, tx.now + seconds)
        kept = (None if count is None else bucket, count)
        rows = tx.db.rows(FINISH_DONE, (*fence, *ends, *kept))
    if rows and outcome.effects is not None:
        extend_waits(tx, outcome.effects.extends)
        change_gates(tx, outcome.effects.gates)
        pass_changed(tx, outcome.effects.gates)
    for seq, job_id, key, mode, ties in rows:
        if key is not None:
            if keeps_nothing(outcome.keep):
                free_for_good(tx, job_id, key)
            else:
                free_at_end(tx, job_id, key, mode, DONE)
        if ties is None:
            continue
        ended.gated.append((seq, ties))
        if not outcome.is_quiet:
            tx.db.rows(WRITE_TIES, (job_id, None))
            body = entry_body(DONE, outcome.result, None)
            ended.entries.append(EndedJob(job_id, DONE, ties, body))
    return bool(rows)


def classify_refused(
    tx: SqliteTransaction,
    worker: int,
    refused: Sequence[Outcome],
    conflicts: OutcomeConflicts,
) -> list[Rejected]:
    """Tell which refused outcomes an earlier call stored, and which were fenced off.

    A rescue deletes the worker's row with its jobs. So while the row exists, no other
    worker had the jobs, and the outcome was stored. Without the row, only the final job
    shows it.
    """
    registered = tx.db.rows(IS_REGISTERED, (worker, tx.boot))
    return [
        Rejected(o.id, o.claim_no, already_stored=False, conflict=conflicts[o.id])
        if o.id in conflicts
        else Rejected(
            o.id, o.claim_no, already_stored=bool(registered) or is_stored_end(tx, o)
        )
        for o in refused
    ]


def is_stored_end(tx: SqliteTransaction, outcome: Outcome) -> bool:
    """Whether this outcome ended the job; a rescuer or a child records a loss."""
    rows = tx.db.rows(READ_CLAIM_STATE, (outcome.id,))
    if not rows:
        return False
    state, claim_no, reason = rows[0]
    if claim_no != outcome.claim_no or state < DONE:
        return False
    return is_ended_by(outcome, state, reason)
