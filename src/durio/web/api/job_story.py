"""The life of a job: its attempts and its transitions, as far as the store keeps them.

A store keeps the end of each failed attempt, and begin and end of the last one.
"""

from datetime import datetime
from typing import NamedTuple

from durio.client.job_view import job_errors, options_of
from durio.model.job import (
    CANCELLED,
    DEAD,
    DONE,
    RUNNING,
    SCHEDULED,
    STATE_BY_CODE,
    JobError,
    State,
    StoredJob,
    attempt_number,
    utc_datetime,
)
from durio.web.api.shapes import Answer

LOST = "WorkerLost"


class StoryAttempt(NamedTuple):
    """One attempt of a job."""

    number: int
    outcome: str  # retried, dead, lost, running, done or cancelled
    worker: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: JobError | None = None


class JobTransition(Answer):
    at: datetime
    state: State
    text: str


def attempts_of(job: StoredJob) -> list[StoryAttempt]:
    """Return the attempts that are known, oldest first."""
    errors = job_errors(job)
    began, ended = utc_datetime(job.started_at), utc_datetime(job.finished_at)
    number = attempt_number(job.retried, job.losses)
    found: list[StoryAttempt] = []
    for place, error in enumerate(errors):
        is_last = place + 1 == len(errors)
        is_of_last = is_last and began is not None and is_after(error.at, began)
        outcome = "lost" if error.type == LOST else "retried"
        if is_last and job.state == DEAD:
            outcome = "dead"
        found.append(
            StoryAttempt(
                error.attempt,
                outcome,
                error.worker,
                began if is_of_last and job.state != RUNNING else None,
                error.at,
                error,
            )
        )
    last = found[-1].number if found else 0
    if job.state == RUNNING:
        worker = None if job.worker is None else str(job.worker)
        found.append(StoryAttempt(number, "running", worker, began))
    elif began and (job.state == DONE or (job.state == CANCELLED and last < number)):
        outcome = STATE_BY_CODE[job.state].value
        found.append(StoryAttempt(number, outcome, None, began, ended))
    return found


def is_after(at: datetime | None, began: datetime) -> bool:
    return at is not None and at >= began


def transitions_of(job: StoredJob) -> list[JobTransition]:
    """Return the known changes of state, oldest first."""
    found: list[JobTransition] = []

    def add(seconds: float | datetime | None, state: int, text: str) -> None:
        at = seconds if isinstance(seconds, datetime) else utc_datetime(seconds)
        if at is not None:
            found.append(JobTransition(at=at, state=STATE_BY_CODE[state], text=text))

    waits = job.run_at is not None and job.run_at > job.created_at
    is_first = not job.retried and not job.snoozed
    text = "enqueued"
    if (tick := options_of(job).tick) is not None:
        text = f"enqueued by schedule {tick.schedule}"
    add(job.created_at, SCHEDULED if waits and is_first else 2, text)
    errors = job_errors(job)
    for place, error in enumerate(errors):
        if place + 1 < len(errors) or job.state != DEAD:
            add(
                error.at, SCHEDULED, error.decision or f"attempt {error.attempt} failed"
            )
    add(job.started_at, RUNNING, f"attempt {attempt_number(job.retried, job.losses)}")
    if job.finished_at is not None:
        decision = errors[-1].decision if errors and job.state == DEAD else ""
        add(job.finished_at, job.state, decision or job.reason or "")
    return sorted(found, key=lambda each: each.at)
