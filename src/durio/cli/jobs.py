"""`durio jobs`: list, show, retry and cancel jobs."""

from collections.abc import Sequence
from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import Place, place_options
from durio.cli.main import error_fields, keep_lines
from durio.cli.output import ago, show_json, show_table, show_text
from durio.cli.record import job_fields, job_text, row_fields
from durio.client.wait import not_found
from durio.model.errors import DurioError, JobNotFound, WrongState
from durio.model.ids import id_bytes, id_text
from durio.model.job import (
    CODE_BY_STATE,
    STATE_BY_CODE,
    Record,
    State,
)
from durio.model.names import check_name, lane, task_name
from durio.model.transitions import check_retry
from durio.ports.browse import Page, Query
from durio.ports.control import Acted, Verb

PAGE_MAX = 200
LIMIT_MAX = 10_000
ERROR_CHARS = 60
COLUMNS = ("id", "state", "task", "queue", "priority", "attempt", "created", "error")


@click.group("jobs", short_help="List, show, retry and cancel jobs.")
def command() -> None:
    """List, show, retry and cancel jobs.

    All of them read the store itself: what you see is what there is.
    """


@command.command("ls")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in State]),
    help="Only jobs in this state; may be repeated.",
)
@click.option("--queue", metavar="QUEUE", help="Only jobs of this queue.")
@click.option("--task", metavar="TASK", help="Only jobs of this task.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=50,
    show_default=True,
    help="At most so many.",
)
@click.option("--cursor", metavar="CURSOR", help="Go on where the last list ended.")
@place_options
@keep_lines
def list_jobs(*, place: Place, limit: int, cursor: str | None, **given: Any) -> None:
    r"""List jobs, the newest first.

    Without --app, --name or DURIO_NAME the jobs of every App in the store are listed. A
    queue, and a task without a dot, belong to the App at hand (default: app).

    \b
    Examples:
      durio jobs ls --state dead --task send_receipt
      durio jobs ls --state ready --state running --queue mail --limit 200
      durio jobs ls --json --state dead | jq -r '.jobs[].id' | xargs durio jobs retry

    With --json: {"jobs": [...], "cursor"}. A job has {"id", "namespace", "task", "queue",
    "priority", "state", "attempt", "max_attempts", "created_at", "run_at",
    "started_at", "finished_at", "reason", "worker", "error_type", "error"}. "cursor" is
    null at the end; "max_attempts" is null when this process cannot know it.
    """

    async def ask(app: App) -> tuple[Page, float, list[dict[str, Any]]]:
        query = query_of(app, place, given)
        page = await find(app, query, limit, cursor)
        return page, app.now(), [row_fields(record, app) for record in page.records]

    page, now, rows = place.ask(ask)
    if place.is_json:
        show_json({"jobs": rows, "cursor": page.cursor})
        return
    show_table(COLUMNS, [cells(row, now) for row in rows], "no jobs")
    if page.cursor is not None:
        show_text(f"more: --cursor {page.cursor}")


def query_of(app: App, place: Place, given: dict[str, Any]) -> Query:
    """What to look for."""
    queue, task = given["queue"], given["task"]
    named = place.app_path is not None or place.namespace() is not None
    return Query(
        namespace=app.name if named else None,
        states=tuple(CODE_BY_STATE[State(state)] for state in given["states"]) or None,
        lane=lane(app.name, check_name("queue", queue)) if queue else None,
        task=task_name(app.name, check_name("task", task)) if task else None,
    )


async def find(app: App, query: Query, limit: int, cursor: str | None) -> Page:
    """As many pages as it takes."""
    store = await app.store()
    found: list[Record] = []
    while True:
        wanted = min(limit - len(found), PAGE_MAX)
        page = await store.find(query, limit=wanted, cursor=cursor)
        found += page.records
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return Page(found, cursor)


def cells(row: dict[str, Any], now: float) -> list[Any]:
    """A job as a line."""
    told = ": ".join(text for text in (row["error_type"], row["error"]) if text)
    cut = told if len(told) <= ERROR_CHARS else f"{told[:ERROR_CHARS]}..."
    of = f" of {row['max_attempts']}" if row["max_attempts"] else ""
    return [
        row["id"],
        row["state"],
        row["task"],
        row["queue"],
        row["priority"],
        f"{row['attempt']}{of}",
        ago(row["created_at"], now),
        cut or row["reason"] or "",
    ]


@command.command("show")
@click.argument("job_id", metavar="ID")
@place_options
@keep_lines
def show_job(*, place: Place, job_id: str) -> None:
    """Show everything about one job.

    Its arguments, meta and options, its times, progress and result, and every failed
    attempt with its traceback and last log lines.

    With --json: the fields of `jobs ls`, and {"args", "kwargs", "meta", "options", "key",
    "progress", "result", "result_until", "cancel_asked", "retried", "losses",
    "snoozed", "attempts"}; an attempt that failed has {"attempt", "at", "worker",
    "type", "message", "traceback", "logs"}. A dead job has also {"job", "original",
    "failed_at", "source_queue", "traceback"}.
    """

    async def ask(app: App) -> dict[str, Any]:
        records = await (await app.store()).get([id_bytes(job_id)])
        if not records:
            raise not_found(id_bytes(job_id))
        return job_fields(records[0], app)

    fields = place.ask(ask)
    if place.is_json:
        show_json(fields)
    else:
        show_text(job_text(fields))


# --- acting on jobs


@command.command("retry")
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@place_options
@keep_lines
def retry_jobs(*, place: Place, job_ids: tuple[str, ...]) -> int:
    """Run dead or cancelled jobs again.

    They keep their ids and get a full budget of attempts.

    With --json: {"jobs": [{"id", "ok", "before", "state", "error"}]}.

    Exit code 1 when one of them could not be retried; the others are, all the same.
    """
    return act(place, job_ids, "retry")


@command.command("cancel")
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@place_options
@keep_lines
def cancel_jobs(*, place: Place, job_ids: tuple[str, ...]) -> int:
    """Cancel jobs that have not ended.

    A waiting job is cancelled at once. A running one is asked to stop and stays
    `running` until it does.

    With --json: {"jobs": [{"id", "ok", "before", "state", "error"}]}.

    Exit code 1 when one of them could not be cancelled; the others are, all the same.
    """
    return act(place, job_ids, "cancel")


def act(place: Place, job_ids: Sequence[str], verb: Verb) -> int:
    """Do it to each, tell about each; 1 when it could not be done to one."""
    answers: dict[str, dict[str, Any]] = {}
    wanted: dict[bytes, str] = {}
    for job_id in job_ids:
        try:
            wanted[id_bytes(job_id)] = job_id
        except JobNotFound as error:
            answers[job_id] = answer(job_id, None, error)

    async def ask(app: App) -> list[Acted]:
        return await (await app.store()).act(list(wanted), verb)

    for acted in place.ask(ask):
        answers[wanted[acted.id]] = answer(
            id_text(acted.id), acted, refusal(acted, verb)
        )
    rows = [answers[job_id] for job_id in dict.fromkeys(job_ids) if job_id in answers]
    if place.is_json:
        show_json({"jobs": rows})
    else:
        for row in rows:
            show_text(answer_text(row, verb))
    return 0 if all(row["ok"] for row in rows) else 1


def refusal(acted: Acted, verb: Verb) -> DurioError | None:
    """Why it was not done; None: it was."""
    if acted.before is None or acted.after is None:
        return not_found(acted.id)
    before = STATE_BY_CODE[acted.before]
    if verb == "retry":
        try:
            check_retry(before, id_text(acted.id))
        except WrongState as error:
            return error
    elif before.is_final and before is not State.CANCELLED:
        return WrongState(
            f"job {id_text(acted.id)} is {before.value} and cannot be cancelled",
            cure="Only jobs that have not ended can be cancelled.",
        )
    return None


def answer(
    job_id: str, acted: Acted | None, error: DurioError | None
) -> dict[str, Any]:
    """What became of one job, as data."""
    return {
        "id": job_id,
        "ok": error is None,
        "before": None if acted is None else state_text(acted.before),
        "state": None if acted is None else state_text(acted.after),
        "error": None if error is None else error_fields(error),
    }


def state_text(code: int | None) -> str | None:
    """A stored state by its name."""
    return None if code is None else STATE_BY_CODE[code].value


def answer_text(row: dict[str, Any], verb: Verb) -> str:
    """What became of one job, as a line."""
    if not row["ok"]:
        return f"{row['id']}  not done: {row['error']['what']} [{row['error']['code']}]"
    asked = (
        "  (asked to stop)" if verb == "cancel" and row["state"] == "running" else ""
    )
    return f"{row['id']}  {row['before']} -> {row['state']}{asked}"
