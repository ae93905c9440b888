"""Outcomes as the arrays that statements take, by id: locks are taken in that order.

Arrays that would hold nothing but nulls stay empty: the server fills them up.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from durio.model.outcome import Kind, Outcome, Reason

FIELDS = Outcome._fields
id_of = itemgetter(FIELDS.index("id"))
claim_no_of = itemgetter(FIELDS.index("claim_no"))
fence_of = itemgetter(FIELDS.index("id"), FIELDS.index("claim_no"))
kind_of = itemgetter(FIELDS.index("kind"))
result_of = itemgetter(FIELDS.index("result"))
result_seconds_of = itemgetter(FIELDS.index("result_seconds"))
keep_of = itemgetter(FIELDS.index("keep"))

Columns = tuple[list[Any], ...]
NOTHING: Columns = ([], [], [], [], [], [], [])


def are_done(outcomes: Sequence[Outcome]) -> bool:
    """Whether all of them are plainly done: the kind with the number 0."""
    return not any(map(kind_of, outcomes))


def is_note(outcome: Outcome) -> bool:
    """Whether the job runs on."""
    return outcome.kind in (Kind.PROGRESS, Kind.ALONE)


def in_order(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """By id; of two about one job the one with the younger claim counts, the last."""
    return sorted(outcomes, key=fence_of)


def done_columns(outcomes: Sequence[Outcome]) -> Columns:
    """$1 to $7 of `exchange` and `exchange_finish`."""
    if not outcomes:
        return NOTHING
    return (
        list(map(id_of, outcomes)),
        list(map(claim_no_of, outcomes)),
        list(map(result_of, outcomes)),
        list(map(float, map(result_seconds_of, outcomes))),
        *keep_columns(outcomes),
    )


def keep_columns(outcomes: Sequence[Outcome]) -> Columns:
    """Seconds, bucket and count of each retention; empty when nobody has one."""
    keeps = list(map(keep_of, outcomes))
    if not any(keeps):
        return ([], [], [])
    return (
        [None if keep is None else float(keep.seconds) for keep in keeps],
        [None if keep is None else keep.bucket for keep in keeps],
        [None if keep is None else keep.count for keep in keeps],
    )


def gate_columns(workers: Sequence[int], outcomes: Sequence[Outcome]) -> Columns:
    """$1 to $12 of `gate_pass`."""
    return (
        list(map(id_of, outcomes)),
        list(map(claim_no_of, outcomes)),
        list(workers),
        list(map(int, map(kind_of, outcomes))),
        [float(o.delay_seconds) for o in outcomes],
        [o.error for o in outcomes],
        [reason_of(o) for o in outcomes],
        [o.guilty for o in outcomes],
        [o.parks for o in outcomes],
        *keep_columns(outcomes),
    )


def reason_of(outcome: Outcome) -> str | None:
    """Why it is dead, if it comes to that."""
    return Reason.WORKER_LOST if outcome.kind == Kind.LOST else outcome.reason


def note_columns(notes: Sequence[Outcome]) -> Columns:
    """$1 to $4 of `finish_notes`: one row per claim, its newest progress."""
    progress: dict[tuple[bytes, int], bytes | None] = {}
    marked: set[tuple[bytes, int]] = set()
    for note in notes:
        claim = (note.id, note.claim_no)
        if note.kind == Kind.ALONE:
            progress.setdefault(claim, None)
            marked.add(claim)
        else:
            progress[claim] = note.progress
    claims = sorted(progress)
    return (
        [job_id for job_id, _ in claims],
        [claim_no for _, claim_no in claims],
        [progress[claim] for claim in claims],
        [claim in marked for claim in claims],
    )
