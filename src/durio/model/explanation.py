"""Why a job does not run, as values, and the rules that need nothing but the stored job.

The rules that read workers, queues and plans are in `client/explain_rules.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from durio.model.failure import Failure, failures
from durio.model.ids import id_text
from durio.model.job import (
    CANCELLED,
    DEAD,
    DONE,
    RUNNING,
    State,
    StoredJob,
    attempt_number,
    utc_datetime,
)
from durio.model.outcome import Reason
from durio.model.quantities import counted, format_duration
from durio.model.tick import TickPlace

ERROR_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class JobReason:
    """One reason why a job does not run, or one fact about it."""

    code: str  # fixed name of the reason, such as `queue_paused`
    text: str  # what is so, with its values
    unblock: str = ""  # what would change it; empty: nothing can, or nothing needs to
    command: str | None = None  # a command that does so, to paste into a shell
    is_blocking: bool = True  # False: the job runs, or will run, in spite of it

    def of_job(self, job: str) -> "JobReason":
        """Return the reason of another job, which this one waits for."""
        return replace(self, text=f"job {job}: {self.text}")


@dataclass(frozen=True, slots=True)
class AttemptStory:
    """One attempt of a job."""

    number: int  # from 1
    outcome: str  # failed, lost, running, done or cancelled
    at: datetime | None  # when it ended; when it began, if it runs
    seconds: float | None = None  # how long it took, if both ends are known
    worker: str | None = None  # the worker that ran it
    error: str | None = None  # class and text of the exception, shortened


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """Why a job does not run now, or how it ended; from `await job.explain()`."""

    id: str  # of the job
    task: str  # full name of the task
    queue: str  # name of the queue, without the App's
    state: State  # where the job is in its life
    at: datetime | None  # when the store was read
    # The most important first. A reason that blocks the job stands before one that does not.
    reasons: tuple[JobReason, ...]
    attempts: tuple[AttemptStory, ...] = ()  # oldest first; the store keeps the last 50

    @property
    def blocking(self) -> tuple[JobReason, ...]:
        """The reasons that keep the job from running or ending; empty if none does."""
        return tuple(reason for reason in self.reasons if reason.is_blocking)

    @property
    def command(self) -> str | None:
        """The command of the first reason that has one."""
        return next((each.command for each in self.reasons if each.command), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for `json.dumps`: times as ISO 8601, enums as text."""
        return msgspec.json.decode(msgspec.json.encode(self))


# --- a job that waits for its time


def scheduled_reason(
    job: StoredJob, tick: TickPlace | None, max_attempts: int | None, now: float
) -> JobReason:
    """Return until when a job is scheduled, and why: a delay, a retry or a snooze."""
    code, cause = why_scheduled(job, tick, max_attempts)
    run_at = job.run_at or job.created_at
    left = run_at - now
    wait = (
        f"due in {format_duration(left)}"
        if left > 0
        else f"due since {format_duration(-left)}: a live worker makes it ready"
    )
    return JobReason(
        code,
        f"{cause}; scheduled until {moment(run_at)}, {wait}",
        "Wait, or run it now.",
        f"durio jobs run {id_text(job.id)}",
    )


def why_scheduled(
    job: StoredJob, tick: TickPlace | None, max_attempts: int | None
) -> tuple[str, str]:
    """Return the code and the cause of a wait."""
    errors = failures(job.errors)
    failed = errors[-1] if errors and job.retried else None
    if failed is not None and job.snoozed:
        # Both happened. A store may not keep when the last attempt began.
        if job.started_at is None:
            return "retry_or_snooze", (
                f"it failed ({error_line(failed)}) and was snoozed {times(job.snoozed)}"
            )
        if failed.at < job.started_at:
            failed = None
    if failed is not None:
        number = attempt_number(job.retried, job.losses)
        most = f" of {max_attempts}" if max_attempts else ""
        cause = f"attempt {failed.attempt} failed ({error_line(failed)})"
        return "retry_wait", f"{cause} and attempt {number}{most} follows"
    if job.snoozed:
        return "snoozed", f"its task snoozed it ({times(job.snoozed)} so far)"
    if tick is not None:
        return "scheduled", f"schedule {tick.schedule} made it"
    return "scheduled", "it was enqueued for later"


# --- a job that has ended


DEAD_TEXTS: Mapping[str | None, tuple[str, str]] = {
    Reason.EXHAUSTED: ("all its attempts failed", "Repair the cause"),
    Reason.PERMANENT: ("its error is one that is not retried", "Repair the cause"),
    Reason.REQUESTED: ("its task asked for it", "Repair the cause"),
    Reason.WORKER_LOST: (
        "its workers died while they ran it",
        "Look for a lack of memory, or a crash in a library",
    ),
    Reason.UNKNOWN_TASK: (
        "no worker knew its task in time",
        "Start a worker with the code that has it",
    ),
    Reason.BAD_PAYLOAD: (
        "its arguments do not fit its task",
        "Correct the arguments, or the code",
    ),
    Reason.BAD_RESULT: (
        "its result cannot be stored",
        "Correct what the task returns",
    ),
    Reason.INPUT_TOO_LARGE: (
        "the results that it waited for are too large for one job",
        "Let the jobs before it return less",
    ),
    Reason.INPUT_LOST: (
        "a result that it waited for is no longer stored",
        "Run the plan again",
    ),
    Reason.EXPIRED: (
        "it had not begun by the time that its expires= gives",
        "Start more workers, or give it more time; a retry has no expiry",
    ),
    Reason.PLAN_REFUSED: (
        "what it asked of its plan could not be stored",
        "Repair the cause",
    ),
}
CANCELLED_TEXTS: Mapping[str | None, str] = {
    "parent_dead": "a job of its plan that it waited for has failed",
    "plan_cancelled": "its plan was cancelled",
    "plan_not_whole": "its plan was not stored completely",
    "next_tick": "the next tick of its schedule replaced it",
}


def final_reason(job: StoredJob, plan: str | None, failed: str | None) -> JobReason:
    """Return how a job ended and what can be done.

    `plan` is the id of its plan, and `failed` that of the plan's job that failed first.
    """
    job_id, at = id_text(job.id), moment(job.finished_at)
    if job.state == DONE:
        return JobReason("done", f"done at {at}", is_blocking=False)
    if job.state == DEAD:
        default = (f"reason {job.reason}", "Repair the cause")
        text, cure = DEAD_TEXTS.get(job.reason, default)
        return JobReason(
            "dead",
            f"dead since {at} ({job.reason}): {text}",
            f"{cure}, then run it again.",
            f"durio jobs retry {job_id}",
        )
    text = CANCELLED_TEXTS.get(job.reason, "an operator or code asked for it")
    if job.reason == "parent_dead" and failed is not None:
        return JobReason(
            "cancelled",
            f"cancelled at {at}: {text}: job {failed}",
            "Repair the cause of that failure, then resume the plan.",
            f"durio jobs retry {failed}",
        )
    if job.reason == "plan_cancelled" and plan is not None:
        text = f"{text}: plan {plan}"
    return JobReason(
        "cancelled",
        f"cancelled at {at}: {text}",
        "Run it again if it is still wanted.",
        f"durio jobs retry {job_id}",
    )


# --- the story of its attempts


def attempts_of(job: StoredJob) -> tuple[AttemptStory, ...]:
    """Return the attempts that are known, oldest first: failed ones, and the last one."""
    found = [
        AttemptStory(
            failure.attempt,
            "lost" if failure.type == "WorkerLost" else "failed",
            utc_datetime(failure.at),
            worker=failure.worker or None,
            error=error_line(failure),
        )
        for failure in failures(job.errors)
    ]
    number = attempt_number(job.retried, job.losses)
    last, began = found[-1].number if found else 0, utc_datetime(job.started_at)
    if job.state == RUNNING:
        worker = None if job.worker is None else str(job.worker)
        found.append(AttemptStory(number, "running", began, worker=worker))
    elif began and (job.state == DONE or (job.state == CANCELLED and last < number)):
        assert job.started_at is not None  # noqa: S101 - `began` is its time
        took = None if job.finished_at is None else job.finished_at - job.started_at
        outcome = "done" if job.state == DONE else "cancelled"
        ended = utc_datetime(job.finished_at)
        found.append(AttemptStory(number, outcome, ended, took))
    return tuple(found)


# --- texts


def error_line(failure: Failure) -> str:
    """Return the class and the first line of an error, shortened."""
    first = failure.message.strip().partition("\n")[0]
    text = f"{failure.type}: {first}" if first else failure.type
    if len(text) <= ERROR_CHARS_MAX:
        return text
    return text[: ERROR_CHARS_MAX - 3] + "..."


def moment(seconds: float | None) -> str:
    """Return a time in UTC, to the second, for people."""
    at = utc_datetime(seconds)
    return "an unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%SZ}"


def times(number: int) -> str:
    return counted(number, "time")
