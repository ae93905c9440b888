"""A job as the API shows it in lists."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from durio.client.job_view import (
    arguments_of,
    options_of,
    retries_of_tasks,
    status_of,
)
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
from durio.web.call import WebCall

ARGUMENTS_CHARS_MAX = 160


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
    # Arguments as a call has them, cut: `order=7, to="ann"`. None: they may be masked.
    args_text: str | None


class JobItems:
    """Makes items of jobs, from what one read of tasks and workers tells about all."""

    def __init__(
        self,
        call: WebCall,
        retries: Mapping[str, int | None],
        workers: Mapping[int, str],
    ) -> None:
        self.call = call
        self.retries = retries
        self.workers = workers
        self.now = call.app.now()

    def fields(self, job: StoredJob) -> dict[str, Any]:
        """Return the fields of an item, for those that have more."""
        fields = item_fields(job, self.retries[job.task], self.now)
        if job.worker is not None:
            fields["worker"] = self.workers.get(job.worker, str(job.worker))
        return {**fields, "args_text": arguments_text(self.call, job)}

    def item(self, job: StoredJob) -> JobItem:
        return JobItem(**self.fields(job))


async def items_for(call: WebCall, jobs: Sequence[StoredJob]) -> JobItems:
    """Read what the items of these jobs need."""
    store, namespace = await call.store(), call.app.name
    retries = await retries_of_tasks(store, call.app.retries_of, jobs)
    workers: dict[int, str] = {}
    if any(job.worker is not None for job in jobs):
        rows = await store.workers(namespace)
        workers = {row.id: str(row.info.get("name") or row.id) for row in rows}
    return JobItems(call, retries, workers)


def arguments_text(call: WebCall, job: StoredJob) -> str | None:
    """Return the arguments on one line; None if any of them may be masked."""
    if not call.user.sees_payloads or call.site.options.mask is not None:
        return None  # the host's formatter is asked for one job, not for a list
    args, kwargs = arguments_of(job)
    text = ""
    for name, value in [*(("", each) for each in args), *kwargs.items()]:
        shown = json.dumps(value, ensure_ascii=False)
        text += f"{', ' if text else ''}{name}{'=' if name else ''}{shown}"
        if len(text) > ARGUMENTS_CHARS_MAX:
            return f"{text[: ARGUMENTS_CHARS_MAX - 1]}\u2026"
    return text


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
            return ""
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
