"""Turn a stored job into its public status and details.

A row in the store may be damaged. What can be decoded is shown, because a damaged row must
not hide the others.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

import msgspec

from durio.model.codec import decode
from durio.model.errors import InvalidOption
from durio.model.failure import failures
from durio.model.ids import id_text
from durio.model.job import (
    PRIORITY_MAX,
    STATE_BY_CODE,
    JobDetails,
    JobError,
    JobStatus,
    LastError,
    Progress,
    StoredJob,
    attempt_number,
    utc_datetime,
)
from durio.model.names import queue_of
from durio.model.options import NO_ROW_OPTIONS, RowOptions, row_options
from durio.model.published_tasks import tasks_kind
from durio.ports.store import Store

RAW_BYTES_MAX = 200
OWN_FIELDS = frozenset({"meta", "key", "plan"})  # options that are fields of a job
# What decoding raises for bytes that no enqueue wrote.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def status_of(stored: StoredJob, retries: int | None) -> JobStatus:
    """Return the status of a stored job; `retries` are its task's, None if unknown."""
    return JobStatus(**status_fields(stored, retries))


def details_of(stored: StoredJob, retries: int | None) -> JobDetails:
    """Return all that the store knows about a job."""
    args, kwargs = arguments_of(stored)
    options = options_of(stored)
    return JobDetails(
        **status_fields(stored, retries),
        args=cast("list[Any]", args) if isinstance(args, list) else [args],
        kwargs=cast("dict[str, Any]", kwargs)
        if isinstance(kwargs, dict)
        else {"damaged": kwargs},
        meta=options.meta or {},
        key=options.key,
        result_until=utc_datetime(stored.result_until),
        worker=None if stored.worker is None else str(stored.worker),
        plan=options.plan and options.plan.plan,
        options=call_options_of(stored),
        errors=tuple(job_errors(stored)),
    )


def status_fields(stored: StoredJob, retries: int | None) -> dict[str, Any]:
    override = options_of(stored).retry
    retries = retries if override is None else override["retries"]
    return {
        "id": id_text(stored.id),
        "task": stored.task,
        "queue": queue_of(stored.lane),
        "priority": PRIORITY_MAX - stored.rank,
        "state": STATE_BY_CODE[stored.state],
        "attempt": attempt_number(stored.retried, stored.losses),
        "max_attempts": None if retries is None else retries + 1,
        "created_at": utc_datetime(stored.created_at),
        "run_at": utc_datetime(stored.run_at),
        "started_at": utc_datetime(stored.started_at),
        "finished_at": utc_datetime(stored.finished_at),
        "progress": progress_of(stored),
        "last_error": last_error(stored),
        "reason": stored.reason,
    }


def progress_of(stored: StoredJob) -> Progress | None:
    with suppress(*UNREADABLE, TypeError, ValueError):
        if stored.progress is not None:
            fields = decode(stored.progress)
            changes = [
                (str(state), utc_datetime(at))
                for state, at in fields.pop("changes", ())
            ]
            return Progress(**fields, changes=tuple(changes))
    return None


def last_error(stored: StoredJob) -> LastError | None:
    """Return the newest failed attempt; None if no attempt has failed."""
    errors = job_errors(stored)
    if not errors:
        return None
    newest = errors[-1]
    return LastError(
        newest.type, newest.message, newest.attempt, newest.at, newest.decision
    )


def job_errors(stored: StoredJob) -> list[JobError]:
    """Return every failed attempt that is kept, oldest first."""
    return [
        JobError(
            type=failure.type,
            message=failure.message,
            traceback=failure.traceback,
            attempt=failure.attempt,
            at=utc_datetime(failure.at),
            worker=failure.worker or None,
            logs=failure.logs,
            decision=failure.decision,
        )
        for failure in failures(stored.errors)
    ]


def call_options_of(job: StoredJob) -> dict[str, Any]:
    """Return the options given with the call, except those with a field of their own."""
    stored: Any = {} if job.opts is None else readable(job.opts)
    if not isinstance(stored, dict):
        return {"damaged": stored}
    known = cast("dict[str, Any]", stored)
    return {name: value for name, value in known.items() if name not in OWN_FIELDS}


def readable(stored: bytes) -> Any:
    """Return a stored value, or its first bytes if it is not JSON."""
    try:
        return decode(stored)
    except UNREADABLE:
        return {"damaged": repr(stored[:RAW_BYTES_MAX])}


def arguments_of(job: StoredJob) -> tuple[Any, Any]:
    """Return args and kwargs; of `task.chunks` the calls, each with its own two, and none."""
    match readable(job.payload):
        case [*calls] if options_of(job).is_chunk:
            return calls, {}
        case [args, kwargs]:
            return args, kwargs
        case damaged:
            return damaged, {}


def options_of(job: StoredJob) -> RowOptions:
    try:
        return row_options(job.opts)
    except InvalidOption:
        return NO_ROW_OPTIONS


# --- how often a task is retried


async def retries_of_tasks(
    store: Store, loaded: Callable[[str], int | None], jobs: Iterable[StoredJob]
) -> dict[str, int | None]:
    """Return retries by task: of the code loaded here, else as workers published them."""
    known = {job.task: loaded(job.task) for job in jobs}
    others = sorted(task for task, retries in known.items() if retries is None)
    for namespace in sorted({task.partition(".")[0] for task in others}):
        names = [task for task in others if task.partition(".")[0] == namespace]
        for record in await store.records(tasks_kind(namespace), names):
            match readable(record.body):
                case {"retries": int(retries)}:
                    known[record.name] = retries
                case _:
                    continue  # published by an older worker
    return known
