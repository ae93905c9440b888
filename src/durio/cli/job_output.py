"""A stored job as data for `--json`, and as text for people."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from durio.app.app import App
from durio.cli.apps import AppSelection
from durio.cli.output import cell, show_json, show_text, to_json
from durio.client.job_view import (
    arguments_of,
    call_options_of,
    job_errors,
    options_of,
    progress_of,
    readable,
    retries_of_tasks,
    status_of,
)
from durio.model.ids import id_text
from durio.model.job import (
    DEAD,
    RUNNING,
    JobError,
    Progress,
    State,
    StoredJob,
    utc_datetime,
)
from durio.model.names import namespace_of, queue_of
from durio.model.plan_change import replacing_plan

# The fields that `jobs show` prints first, in this order; empty ones are left out.
HEAD = (
    *("task", "queue", "priority", "state", "reason", "attempt", "worker", "key"),
    "plan",
)
TIMES = ("created_at", "run_at", "started_at", "finished_at")
ATTEMPT = (
    *("attempt", "at", "worker", "type", "message", "decision", "traceback", "logs"),
)
REST = ("args", "kwargs", "meta", "options", "progress", "states", "result")
WIDTH = 12


async def rows_of(app: App, jobs: Sequence[StoredJob]) -> list[dict[str, Any]]:
    """Return the fields of jobs in a list."""
    retries = await retries_of_tasks(await app.store(), app.retries_of, jobs)
    return [row_fields(job, retries[job.task]) for job in jobs]


def row_fields(job: StoredJob, retries: int | None) -> dict[str, Any]:
    """Return the fields of a job in a list; `retries` of its task, None: unknown."""
    status = status_of(job, retries)
    error = status.last_error
    return {
        "id": status.id,
        "namespace": namespace_of(job.lane),
        "task": status.task,
        "queue": status.queue,
        "priority": status.priority,
        "state": status.state.value,
        "attempt": status.attempt,
        "max_attempts": status.max_attempts,
        "created_at": status.created_at,
        "run_at": status.run_at,
        "started_at": status.started_at,
        "finished_at": status.finished_at,
        "reason": status.reason,
        "worker": None if job.worker is None else str(job.worker),
        "error_type": error.type if error else None,
        "error": error.message if error else None,
    }


def show_job(
    selection: AppSelection, find_job: Callable[[App], Awaitable[StoredJob]]
) -> None:
    async def ask(app: App) -> tuple[dict[str, Any], str]:
        job = await find_job(app)
        (row,) = await rows_of(app, [job])
        return job_fields(job, row), why_hint(app, job)

    fields, note = selection.run_unscoped(ask)
    if selection.is_json:
        show_json(fields)
    else:
        show_text(job_text(fields) + note)


def why_hint(app: App, job: StoredJob) -> str:
    """Return the command that says why a job waits; nothing for one that does not."""
    if job.state >= RUNNING:
        return ""
    return app.pasteable(f"\n\nwhy it waits: durio why {id_text(job.id)}")


def attempt_text(row: dict[str, Any]) -> str:
    """Return text such as `2 of 6`; a raised Retry may allow more attempts than that."""
    number, most = row["attempt"], row["max_attempts"]
    return f"{number} of {most}" if most and number <= most else f"{number}"


def short_error(row: dict[str, Any]) -> str:
    """Return the last error of a job in a list, or why it is dead; empty if it is done."""
    if row["state"] == State.DONE.value:
        return ""  # an earlier attempt failed: `jobs show` has its error
    full = ": ".join(text for text in (row["error_type"], row["error"]) if text)
    first = full.strip().partition("\n")[0]
    return first or row["reason"] or ""


def job_fields(job: StoredJob, row: dict[str, Any]) -> dict[str, Any]:
    """Return all fields of a job."""
    args, kwargs = arguments_of(job)
    options = options_of(job)
    errors = job_errors(job)
    fields = {
        **row,
        "args": args,
        "kwargs": kwargs,
        "meta": options.meta or {},
        "options": call_options_of(job),
        "key": options.key,
        "plan": options.plan and options.plan.plan,
        "progress": progress_of(job),
        "result": result_fields(job.result),
        "result_until": utc_datetime(job.result_until),
        "cancel_asked": job.cancel_asked,
        "retried": job.retried,
        "losses": job.losses,
        "snoozed": job.snoozed,
        "attempts": [attempt_fields(error) for error in errors],
    }
    if job.state == DEAD:
        fields |= dead_fields(job, errors)
    return fields


def result_fields(result: bytes | None) -> Any:
    """Return a result as JSON values; the id of the plan that has the place of the job."""
    plan_id = replacing_plan(result)
    if plan_id is not None:
        return {"plan": id_text(plan_id)}
    return None if result is None else readable(result)


def attempt_fields(error: JobError) -> dict[str, Any]:
    return {name: getattr(error, name) for name in ATTEMPT}


def dead_fields(job: StoredJob, errors: list[JobError]) -> dict[str, Any]:
    """Return the fields that only a dead letter has."""
    args, kwargs = arguments_of(job)
    return {
        "job": id_text(job.id),
        "original": {"args": args, "kwargs": kwargs},
        "failed_at": utc_datetime(job.finished_at),
        "source_queue": queue_of(job.lane),
        "worker": errors[-1].worker if errors else None,
        "traceback": errors[-1].traceback if errors else None,
    }


# --- text


def job_text(fields: dict[str, Any]) -> str:
    shown = {**fields, "attempt": attempt_text(fields)}
    if fields["cancel_asked"] and fields["finished_at"] is None:
        shown["state"] += " (asked to cancel)"
    lines = [f"job {fields['id']}"]
    lines += value_lines(shown, (*HEAD, *TIMES))
    lines += value_lines(rest_texts(fields), REST)
    for attempt in fields["attempts"]:
        lines += ["", *attempt_lines(attempt)]
    return "\n".join(lines)


def rest_texts(fields: dict[str, Any]) -> dict[str, str]:
    """Return the values of REST as text; a result may be empty, or 0."""
    progress: Progress | None = fields["progress"]
    texts = {name: to_json(fields[name]) for name in REST if fields.get(name)}
    if fields["result"] is not None:
        texts["result"] = to_json(fields["result"])
    if progress is not None:
        texts["progress"] = progress_text(progress)
        changes = [f"{state} {cell(at)}" for state, at in progress.changes]
        texts |= {"states": ", ".join(changes)} if changes else {}
    return texts


def progress_text(progress: Progress) -> str:
    """Return text such as `2 of 4  resizing`."""
    total = "" if progress.total is None else f" of {progress.total:g}"
    texts = (f"{progress.done:g}{total}", progress.state, progress.message)
    return "  ".join(text for text in texts if text)


def value_lines(fields: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Return `name  value` for each name that has a value."""
    return [
        f"  {name.removesuffix('_at'):<{WIDTH}}{cell(fields[name])}"
        for name in names
        if fields.get(name) is not None
    ]


def attempt_lines(attempt: dict[str, Any]) -> list[str]:
    """Return a failed attempt with its traceback and last log lines."""
    by = f" by {attempt['worker']}" if attempt["worker"] else ""
    head = f"attempt {attempt['attempt']} failed {cell(attempt['at'])}{by}"
    lines = [head, f"  {attempt['type']}: {attempt['message']}"]
    lines += [f"  {attempt['decision']}"] if attempt["decision"] else []
    lines += [f"  {line}" for line in attempt["traceback"].splitlines()]
    if attempt["logs"]:
        lines += ["  log:", *(f"    {line}" for line in attempt["logs"])]
    return lines
