"""A job as the API shows it in lists."""

from datetime import datetime
from typing import Any

from durio.client.job_view import options_of, status_of
from durio.model.job import (
    CANCELLED,
    DEAD,
    DONE,
    RUNNING,
    JobStatus,
    State,
    StoredJob,
    utc_datetime,
)
from durio.model.quantities import format_duration
from durio.web.api.shapes import Answer


class ErrorText(Answer):
    type: str
    text: str


class JobProgress(Answer):
    done: float
    total: float | None
    message: str | None
    state: str | None


class JobItem(Answer):
    id: str
    task: str
    queue: str
    state: State
    priority: int
    attempt: int
    max_attempts: int | None  # None: the task's code is unknown
    created_at: datetime | None
    run_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    key: str | None
    reason: str | None
    last_error: ErrorText | None
    progress: JobProgress | None
    now: str  # what matters in this state, for people


def job_item(job: StoredJob, retries: int | None, now: float) -> JobItem:
    """Return a job of a list; `retries` of its task, None: unknown."""
    return JobItem(**item_fields(job, retries, now))


def item_fields(job: StoredJob, retries: int | None, now: float) -> dict[str, Any]:
    status = status_of(job, retries)
    error, progress = status.last_error, status.progress
    return {
        "id": status.id,
        "task": status.task,
        "queue": status.queue,
        "state": status.state,
        "priority": status.priority,
        "attempt": status.attempt,
        "max_attempts": status.max_attempts,
        "created_at": utc_datetime(job.created_at),
        "run_at": status.run_at,
        "started_at": status.started_at,
        "finished_at": status.finished_at,
        "worker": None if job.worker is None else str(job.worker),
        "key": options_of(job).key,
        "reason": status.reason,
        "last_error": error and ErrorText(type=error.type, text=error.message),
        "progress": progress
        and JobProgress(
            done=progress.done,
            total=progress.total,
            message=progress.message,
            state=progress.state,
        ),
        "now": state_text(job, status, now),
    }


def state_text(job: StoredJob, status: JobStatus, now: float) -> str:
    """Return what matters about a job in its state."""
    match job.state:
        case 0 if job.run_at is not None:
            text = f"due in {span(job.run_at - now)}"
            return f"{text}, {attempt_text(status)}" if job.retried else text
        case state if state == RUNNING:
            asked = ", asked to stop" if job.cancel_asked else ""
            return (
                f"for {span(since(job.started_at, now))}, {attempt_text(status)}{asked}"
            )
        case state if state == DONE:
            return f"took {span(since(job.started_at, job.finished_at or now))}"
        case state if state in (DEAD, CANCELLED):
            return job.reason or ""
        case _:
            return f"waits for {span(since(job.created_at, now))}"


def since(start: float | None, end: float) -> float:
    return 0.0 if start is None else end - start


def span(seconds: float) -> str:
    return format_duration(max(0.0, round(seconds, 1)))


def attempt_text(status: JobStatus) -> str:
    most = status.max_attempts
    of = f" of {most}" if most and status.attempt <= most else ""
    return f"attempt {status.attempt}{of}"
