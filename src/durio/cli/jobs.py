"""`durio jobs`: list, show, retry and cancel jobs."""

from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, selection_options
from durio.cli.filters import find, page_options
from durio.cli.job_output import (
    attempt_text,
    job_by_id,
    row_fields,
    short_error,
    show_job,
)
from durio.cli.main import keep_lines
from durio.cli.output import ago, show_json, show_table, show_text
from durio.cli.prompts import BY_OPTION, operator
from durio.cli.responses import act_on_jobs
from durio.model.job import CODE_BY_STATE, State
from durio.model.names import check_name, lane, task_name
from durio.ports.browse import Page, Query

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
@page_options
@selection_options
@keep_lines
def list_jobs(
    *, selection: AppSelection, limit: int, cursor: str | None, **given: Any
) -> None:
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
        query = query_of(app, selection, given)
        page = await find(app, query, limit, cursor)
        return page, app.now(), [row_fields(record, app) for record in page.jobs]

    page, now, rows = selection.run(ask)
    if selection.is_json:
        show_json({"jobs": rows, "cursor": page.cursor})
        return
    show_table(COLUMNS, [cells(row, now) for row in rows], "no jobs")
    if page.cursor is not None:
        show_text(f"more: --cursor {page.cursor}")


def query_of(app: App, selection: AppSelection, given: dict[str, Any]) -> Query:
    queue, task = given["queue"], given["task"]
    return Query(
        namespace=selection.scope_of(app),
        states=tuple(CODE_BY_STATE[State(state)] for state in given["states"]) or None,
        lane=lane(app.name, check_name("queue", queue)) if queue else None,
        task=task_name(app.name, check_name("task", task)) if task else None,
    )


def cells(row: dict[str, Any], now: float) -> list[Any]:
    return [
        row["id"],
        row["state"],
        row["task"],
        row["queue"],
        row["priority"],
        attempt_text(row),
        ago(row["created_at"], now),
        short_error(row),
    ]


@command.command("show")
@click.argument("job_id", metavar="ID")
@selection_options
@keep_lines
def show_one(*, selection: AppSelection, job_id: str) -> None:
    """Show everything about one job.

    Its arguments, meta and options, its times, progress and result, and every failed
    attempt with its traceback and last log lines.

    With --json: the fields of `jobs ls`, and {"args", "kwargs", "meta", "options", "key",
    "progress", "result", "result_until", "cancel_asked", "retried", "losses",
    "snoozed", "attempts"}; an attempt that failed has {"attempt", "at", "worker",
    "type", "message", "traceback", "logs"}. A dead job has also {"job", "original",
    "failed_at", "source_queue", "traceback"}.
    """
    show_job(selection, lambda app: job_by_id(app, job_id))


# --- acting on jobs


@command.command("retry")
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@BY_OPTION
@selection_options
@keep_lines
def retry_jobs(
    *, selection: AppSelection, job_ids: tuple[str, ...], by: str | None
) -> int:
    """Run dead or cancelled jobs again.

    They keep their ids and get a full budget of attempts.

    With --json: {"jobs": [{"id", "ok", "before", "state", "error"}]}.

    Exit code 1 when one of them could not be retried; the others are, all the same.
    """
    return act_on_jobs(selection, job_ids, "retry", by=operator(by))


@command.command("cancel")
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@BY_OPTION
@selection_options
@keep_lines
def cancel_jobs(
    *, selection: AppSelection, job_ids: tuple[str, ...], by: str | None
) -> int:
    """Cancel jobs that have not ended.

    A waiting job is cancelled at once. A running one is asked to stop and stays
    `running` until it does.

    With --json: {"jobs": [{"id", "ok", "before", "state", "error"}]}.

    Exit code 1 when one of them could not be cancelled; the others are, all the same.
    """
    return act_on_jobs(selection, job_ids, "cancel", by=operator(by))
