"""How an attempt ended, and the few other words a worker may send about a claim."""

from enum import IntEnum
from typing import NamedTuple

from durio.model.job import CANCELLED, DEAD, DONE


class OutcomeKind(IntEnum):
    """What happened; the numbers are those of the stores' statements."""

    DONE = 0
    RETRY = 1
    SNOOZE = 2
    RELEASE = 3  # given back unrun: costs nothing
    DEAD = 4
    CANCEL = 5
    LOST = 6  # died with its worker (a rescuer says so) or with its child process
    PROGRESS = 7  # still running, and this far
    ALONE = 8  # about to run alone: the last chance of a job that lost two workers


# What ends an attempt, as opposed to notes about a running one.
ENDING_KINDS = frozenset(
    {
        OutcomeKind.DONE,
        OutcomeKind.RETRY,
        OutcomeKind.SNOOZE,
        OutcomeKind.RELEASE,
        OutcomeKind.DEAD,
        OutcomeKind.CANCEL,
    }
)


class Reason:
    """Why a job is dead."""

    EXHAUSTED = "exhausted"
    PERMANENT = "permanent"
    WORKER_LOST = "worker_lost"
    UNKNOWN_TASK = "unknown_task"
    BAD_PAYLOAD = "bad_payload"
    REQUESTED = "requested"


class Keep(NamedTuple):
    """How long a final job stays: an age, or the newest `count` of a bucket.

    `seconds` 0 leaves no trace. `bucket` is the task or queue that `count` is of.
    """

    seconds: float
    count: int | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    bucket: str | None = None


class Outcome(NamedTuple):
    """One word about one claim, fenced by (id, claim_no, worker)."""

    id: bytes
    claim_no: int
    kind: int
    result: bytes | None = None  # done
    result_seconds: float = 3600.0  # done: how long the result may be read
    keep: Keep | None = None  # final: None is the store's default for that state
    delay_seconds: float = 0.0  # retry, snooze, release
    error: bytes | None = None  # retry, dead, cancel: one JSON object
    reason: str | None = None  # dead
    progress: bytes | None = None  # progress; done, in the task's own transaction
    parks: bool = False  # release: this worker does not know the task
    killed_process: bool = False  # lost: it is known to have killed its own process


def with_progress(end: Outcome) -> list[Outcome]:
    """An end in the task's own transaction, after the progress that was told in it."""
    if end.progress is None:
        return [end]
    note = Outcome(end.id, end.claim_no, OutcomeKind.PROGRESS, progress=end.progress)
    return [note, end]


class RescuedJob(NamedTuple):
    """A job that left `running` other than by its own worker's word."""

    id: bytes
    task: str
    lane: str
    state: int
    reason: str | None
    attempt: int
    worker: int


def is_ended_by(outcome: Outcome, state: int, reason: str | None) -> bool:
    """Whether a job that ended so, under this claim, ended by this very word.

    A loss is a rescuer's word, or that of a worker whose child died.
    """
    if outcome.kind == OutcomeKind.DONE:
        return state == DONE
    if outcome.kind == OutcomeKind.RELEASE:
        return state == CANCELLED  # the only end that a release can come to
    is_lost = state == DEAD and reason == Reason.WORKER_LOST
    return is_lost is outcome.killed_process
