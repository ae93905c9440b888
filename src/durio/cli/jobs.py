"""`durio jobs`: list, show, retry, cancel, run, discard and rename jobs."""

from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, ListSelection, list_options, selection_options
from durio.cli.dead_actions import BulkSelection, act_on_selected, job_bulk_options
from durio.cli.filters import (
    Filters,
    find,
    job_filter_options,
    job_filter_words,
    page_options,
)
from durio.cli.job_ids import job_by_id
from durio.cli.job_output import attempt_text, rows_of, short_error, show_job
from durio.cli.jobs_rename import rename_jobs
from durio.cli.main import keep_lines
from durio.cli.output import age, show_json, show_table, show_text
from durio.cli.query_words import QueryCommand
from durio.cli.table import Column
from durio.client.job_search import COUNT_MAX, SearchCount, count_jobs
from durio.model.job import STATE_BY_CODE
from durio.ports.browse import Page

COLUMNS = (
    Column("id"),
    Column("state"),
    Column("task", least=20),
    Column("age", 1),
    Column("attempt", 2),
    Column("queue", 4, least=10),
    Column("priority", 5),
    Column("error", 3, least=20),
)


@click.group(
    "jobs", short_help="List, count, show, retry, cancel, run, discard, rename jobs."
)
@keep_lines
def command() -> None:
    r"""List, show, retry, cancel, run, discard and rename jobs.

    Choose jobs by id, by filters or by a query. A change of several jobs is counted exactly and
    confirmed first. A prefix of an id is enough if it has at least 8 digits and is
    unique. Changes are recorded: `durio audit ls`.

    \b
    Exit codes:
      0  done
      1  some ids could not be changed: each is listed with the reason
      2  usage, or not confirmed
      3, 4, 5  store, import of the App, schema
    """


@command.command("ls", cls=QueryCommand)
@job_filter_words
@page_options
@list_options
@keep_lines
def list_jobs(
    *, selection: ListSelection, filters: Filters, limit: int, cursor: str | None
) -> None:
    r"""List jobs, newest first.

    Lists jobs of one App: --app, --name, DURIO_APP, DURIO_NAME, or the only App in the
    store. --all-apps lists those of every App. --task takes a name with or without the
    App.

    \b
    Examples:
      durio jobs ls --state dead --task send_receipt
      durio jobs ls --state ready --state running --queue mail --limit 200
      durio jobs ls --json --state dead | jq -r '.jobs[].id' | xargs durio jobs retry
      durio jobs ls state:dead queue:mail -task:send_* args.user:42 'age:>1h'

    Words are a query: see docs/reference/query-language.md. It may stand beside options.

    With --json: {"jobs": [...], "cursor"}. A job has {"id", "namespace", "task", "queue",
    "priority", "state", "attempt", "max_attempts", "created_at", "run_at",
    "started_at", "finished_at", "reason", "worker", "error_type", "error"}. "cursor" is
    null on the last page; "max_attempts" is null when it is not known here.
    """

    async def ask(
        app: App, scope: str | None
    ) -> tuple[Page, float, list[dict[str, Any]]]:
        page = await find(app, filters, scope, limit, cursor)
        return page, app.now(), await rows_of(app, page.jobs)

    page, now, rows = selection.run_list(ask)
    if selection.is_json:
        show_json({"jobs": rows, "cursor": page.cursor})
        return
    none = f"{filters.jobs_text(0)}{filters.text()}"
    show_table(COLUMNS, [cells(row, now) for row in rows], none)
    if page.cursor is not None:
        show_text(f"more: --cursor {page.cursor}")


@command.command("count", cls=QueryCommand)
@job_filter_words
@list_options
@keep_lines
def count_matching(*, selection: ListSelection, filters: Filters) -> None:
    r"""Count jobs by state: exact to 10,000, and for at most a second.

    \b
    Examples:
      durio jobs count
      durio jobs count state:dead 'error:"timed out"'

    With --json: {"count", "capped", "partial", "by_state"}. "capped": there are more.
    "partial": the count took too long; there may be more.
    """

    async def ask(app: App, scope: str | None) -> SearchCount:
        search, _ = await filters.search(app, scope)
        return await count_jobs(await app.store(), app.clock, search)

    found = selection.run_list(ask)
    by_state = {
        STATE_BY_CODE[code].value: min(jobs, COUNT_MAX)
        for code, jobs in found.by_state.items()
    }
    if selection.is_json:
        capped, partial = found.is_capped, found.is_partial
        counts = {"count": found.jobs, "capped": capped, "partial": partial}
        show_json({**counts, "by_state": by_state})
        return
    more = "more than " if found.is_capped else "at least " if found.is_partial else ""
    states = ", ".join(f"{jobs} {state}" for state, jobs in by_state.items())
    text = f"{more}{filters.jobs_text(found.jobs)}{filters.text()}"
    show_text(f"{text}: {states}" if states else text)


def cells(row: dict[str, Any], now: float) -> list[Any]:
    return [
        row["id"],
        row["state"],
        row["task"],
        age(row["created_at"], now),
        attempt_text(row),
        row["queue"],
        row["priority"],
        short_error(row),
    ]


@command.command("show")
@click.argument("job_id", metavar="ID")
@selection_options
@keep_lines
def show_one(*, selection: AppSelection, job_id: str) -> None:
    r"""Show everything about one job.

    Shows its arguments, meta and options, its times, progress and result, and every
    failed attempt with traceback and last log lines.

    \b
    Example:
      durio jobs show 0198c2f4

    With --json: the fields of `jobs ls`, and {"args", "kwargs", "meta", "options", "key",
    "plan", "progress", "result", "result_until", "cancel_asked", "retried", "losses",
    "snoozed", "attempts"}; an attempt that failed has {"attempt", "at", "worker",
    "type", "message", "traceback", "logs"}. A dead job has also {"job", "original",
    "failed_at", "source_queue", "traceback"}.
    """
    show_job(selection, lambda app: job_by_id(app, job_id))


# --- acting on jobs


@command.command("retry", cls=QueryCommand)
@job_filter_options
@job_bulk_options
@selection_options
@keep_lines
def retry_jobs(*, selection: AppSelection, bulk: BulkSelection) -> int:
    r"""Run dead or cancelled jobs again: by id, by filters, or all of them.

    The jobs keep their ids and may use all their attempts again.

    \b
    Examples:
      durio jobs retry 0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55
      durio jobs retry --state cancelled --task send --newer 1h
      durio jobs retry state:dead queue:mail args.tenant:acme --dry-run

    A job of a failed plan resumes its plan. If the plan is gone, or was cancelled, the
    job runs alone, and the answer says so.

    With --json, by id: {"jobs": [{"id", "ok", "before", "state", "error", "plan"}]};
    "plan" is null or {"id", "state", "alone", "text"}. Else {"counted", "done", "held",
    "alone", "dry_run"}; `held` jobs are locked by an open transaction.

    Exit code 1 when some ids could not be retried; the rest were.
    """
    return act_on_selected(selection, bulk, "retry")


@command.command("cancel", cls=QueryCommand)
@job_filter_options
@job_bulk_options
@selection_options
@keep_lines
def cancel_jobs(*, selection: AppSelection, bulk: BulkSelection) -> int:
    r"""Cancel jobs that have not ended: by id, by filters, or all of them.

    A waiting job is cancelled at once. A running job is asked to stop; its state stays
    `running` until it does.

    \b
    Examples:
      durio jobs cancel 0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55
      durio jobs cancel --state scheduled --task send --dry-run

    With --json, by id: {"jobs": [{"id", "ok", "before", "state", "error"}]}; else
    {"counted", "done", "held", "dry_run"}; `held` jobs are locked by an open transaction.

    Exit code 1 when some ids could not be cancelled; the rest were.
    """
    return act_on_selected(selection, bulk, "cancel")


@command.command("run", cls=QueryCommand)
@job_filter_options
@job_bulk_options
@selection_options
@keep_lines
def run_jobs_now(*, selection: AppSelection, bulk: BulkSelection) -> int:
    r"""Make scheduled jobs ready now: by id, by filters, or all of them.

    This includes jobs that failed and wait for their next attempt. A worker runs them as soon as
    it has a free slot.

    \b
    Examples:
      durio jobs run 0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55
      durio jobs run --task send --error timeout

    With --json, by id: {"jobs": [{"id", "ok", "before", "state", "error"}]}; else
    {"counted", "done", "held", "dry_run"}; `held` jobs are locked by an open transaction.

    Exit code 1 when some ids are not scheduled; the rest were made ready.
    """
    return act_on_selected(selection, bulk, "run_now")


@command.command("discard", cls=QueryCommand)
@job_filter_options
@job_bulk_options
@selection_options
@keep_lines
def discard_jobs(*, selection: AppSelection, bulk: BulkSelection) -> int:
    r"""Delete dead jobs for good: by id, by filters, or all of them.

    Asks for confirmation, also for a single id. To keep a copy that can be imported
    again, run `durio dead export` first.

    \b
    Example:
      durio jobs discard --task send --reason unknown_task --older 7d

    With --json, by id: {"jobs": [{"id", "ok", "before", "state", "error"}]}; else
    {"counted", "done", "held", "dry_run"}; `held` jobs are locked by an open transaction.

    Exit code 1 when some ids are not dead; the rest were deleted.
    """
    return act_on_selected(selection, bulk, "discard")


command.add_command(rename_jobs)
