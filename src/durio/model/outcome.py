"""Outcomes of attempts, and other messages of a worker about a claim."""

from enum import IntEnum
from typing import NamedTuple

from durio.model.effects import Effects
from durio.model.job import CANCELLED, DEAD, DONE
from durio.model.plan_change import PlanChange


class OutcomeKind(IntEnum):
    """The kind of an outcome; the SQL statements use these numbers."""

    DONE = 0
    RETRY = 1
    SNOOZE = 2
    RELEASE = 3  # given back without a run; costs no attempt
    DEAD = 4
    CANCEL = 5
    LOST = 6  # the worker died (a rescuer reports it), or the child process
    PROGRESS = 7  # still running
    ALONE = 8  # about to run alone, after two lost workers


class Reason:
    """Why a job is dead."""

    EXHAUSTED = "exhausted"
    PERMANENT = "permanent"
    WORKER_LOST = "worker_lost"
    UNKNOWN_TASK = "unknown_task"
    BAD_PAYLOAD = "bad_payload"
    BAD_RESULT = "bad_result"
    REQUESTED = "requested"
    INPUT_TOO_LARGE = "input_too_large"  # of a node of a plan
    INPUT_LOST = "input_lost"
    EXPIRED = "expired"  # no attempt may begin any more: `expires=`
    PLAN_REFUSED = "plan_refused"  # what it asked of its plan could not be stored


class KeepRule(NamedTuple):
    """How long a final job is kept: an age, or the newest `count` of a bucket.

    With `seconds` 0 the job is deleted at once. `bucket` is the task or queue that `count`
    is for.
    """

    seconds: float
    count: int | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    bucket: str | None = None


class Outcome(NamedTuple):
    """One message about one claim, fenced by (id, claim_no, worker)."""

    id: bytes
    claim_no: int
    kind: int
    result: bytes | None = None  # done
    result_seconds: float = 3600.0  # done: how long the result may be read
    keep: KeepRule | None = None  # final: None means the store's default for that state
    delay_seconds: float = 0.0  # retry, snooze, release
    error: bytes | None = None  # retry, dead, cancel: one JSON object
    reason: str | None = None  # dead
    progress: bytes | None = None  # progress, or done in the task's own transaction
    parks: bool = False  # release: this worker does not know the task
    # release: give the places back and pass the gates again (those held until the end stay)
    again_from_gates: bool = False
    killed_process: bool = False  # lost: this job is known to have killed its process
    effects: Effects | None = None  # done: written if and only if it is accepted
    is_quiet: bool = (
        False  # done: append no entries of `on_end`; the effects do so later
    )
    # done: what the task asked of its plan. The worker turns it into effects.
    change: PlanChange | None = None


def with_progress(end: Outcome) -> list[Outcome]:
    """Return the end of a job in its own transaction, after the progress reported there."""
    if end.progress is None:
        return [end]
    note = Outcome(end.id, end.claim_no, OutcomeKind.PROGRESS, progress=end.progress)
    return [note, end]


class RescuedJob(NamedTuple):
    """A job that left `running` without an outcome from its worker."""

    id: bytes
    task: str
    lane: str
    state: int
    reason: str | None
    attempt: int
    worker: int


def is_ended_by(outcome: Outcome, state: int, reason: str | None) -> bool:
    """Whether this outcome wrote the end of a job under this claim.

    A rescuer writes a loss, or a worker whose child process died.
    """
    if outcome.kind == OutcomeKind.DONE:
        return state == DONE
    if outcome.kind == OutcomeKind.RELEASE:
        return state == CANCELLED  # the only final state that a release leads to
    is_lost = state == DEAD and reason == Reason.WORKER_LOST
    return is_lost is outcome.killed_process
