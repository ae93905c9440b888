"""`durio dead`: list, retry, discard, export and import dead letters."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, ListSelection, list_options, selection_options
from durio.cli.dead_actions import (
    BulkSelection,
    act_on_selected,
    bulk_options,
    dead_letter_by_id,
    retry_edited,
)
from durio.cli.dead_letter_file import (
    open_input,
    open_output,
    read_dead_letters,
    restore,
    write_dead_letters,
)
from durio.cli.filters import (
    Filters,
    filter_options,
    filter_words,
    find,
    page_options,
)
from durio.cli.job_output import attempt_text, rows_of, short_error, show_job
from durio.cli.main import keep_lines
from durio.cli.output import age, show_json, show_table, show_text
from durio.cli.prompts import BY_OPTION, operator
from durio.cli.query_words import QueryCommand
from durio.cli.table import Column
from durio.client.job_view import arguments_of
from durio.model.errors import UsageError
from durio.model.job import StoredJob
from durio.model.names import queue_of
from durio.ports.browse import DeathCount, Page

COLUMNS = (
    Column("id"),
    Column("task", least=20),
    Column("age", 1),
    Column("reason", 3),
    Column("attempts", 4),
    Column("queue", 5, least=10),
    Column("error", 2, least=11),
)
TOTALS = (
    Column("queue", 2, least=10),
    Column("task", least=20),
    Column("error", 1, least=20),
    Column("dead"),
)
METRIC = "jobs_dead_lettered_total"


@click.group("dead", short_help="Review dead letters: retry, discard, export, import.")
@keep_lines
def command() -> None:
    r"""List, show, retry, discard, export and import dead letters.

    A dead letter is a job in state `dead`. It keeps its arguments and every failed
    attempt. All commands take the same filters. A change of several jobs is counted
    exactly and confirmed first, and recorded: `durio audit ls`. A prefix of an id is
    enough if it has at least 8 digits and is unique.

    \b
    Exit codes:
      0  done
      1  some ids could not be changed: each is listed with the reason; or not
         confirmed, and nothing was changed
      2  usage, no such task or queue, several Apps, or no terminal for the question
      3, 4, 5  store, import of the App, schema
    """


# --- list and show


@command.command("ls", cls=QueryCommand)
@filter_words
@page_options
@list_options
@keep_lines
def list_dead(
    *, selection: ListSelection, filters: Filters, limit: int, cursor: str | None
) -> None:
    r"""List dead letters; those that died last come first.

    Lists dead letters of one App: --app, --name, DURIO_APP, DURIO_NAME, or the only App
    in the store. --all-apps lists those of every App. --task takes a name with or
    without the App.

    \b
    Examples:
      durio dead ls --task send --error timeout --older 1h
      durio dead ls --reason exhausted --newer 2d --json | jq -r '.jobs[].id'
      durio dead ls queue:mail args.user:42 -error:timeout

    Words are a query: see docs/reference/query-language.md.

    With --json: {"jobs": [...], "cursor"}. A job has the fields of `durio jobs ls`, and
    {"args", "kwargs", "retried"}; "cursor" is null on the last page.
    """

    async def ask(
        app: App, scope: str | None
    ) -> tuple[Page, float, list[dict[str, Any]]]:
        page = await find(app, filters, scope, limit, cursor)
        rows = await rows_of(app, page.jobs)
        pairs = zip(page.jobs, rows, strict=True)
        return page, app.now(), [{**row, **dead_row(job)} for job, row in pairs]

    page, now, rows = selection.run_list(ask)
    if selection.is_json:
        show_json({"jobs": rows, "cursor": page.cursor})
        return
    none = f"{filters.jobs_text(0)}{filters.text()}"
    show_table(COLUMNS, [cells(row, now) for row in rows], none)
    if page.cursor is not None:
        show_text(f"more: --cursor {page.cursor}")


def dead_row(job: StoredJob) -> dict[str, Any]:
    args, kwargs = arguments_of(job)
    return {"args": args, "kwargs": kwargs, "retried": job.retried}


def cells(row: dict[str, Any], now: float) -> list[Any]:
    return [
        row["id"],
        row["task"],
        age(row["finished_at"], now),
        row["reason"],
        attempt_text(row),
        row["queue"],
        short_error(row),
    ]


@command.command("show")
@click.argument("job_id", metavar="ID")
@selection_options
@keep_lines
def show_dead(*, selection: AppSelection, job_id: str) -> None:
    r"""Show everything about one dead letter.

    Shows its arguments, meta, key and options, and every failed attempt with traceback
    and last log lines. For a job that is not dead use `durio jobs show`.

    \b
    Example:
      durio dead show 0198c2f4

    Exit codes: 1 no such job; 2 it is not dead.

    With --json: the fields of `durio jobs show`.
    """
    show_job(selection, lambda app: dead_letter_by_id(app, job_id, selection))


# --- retry and discard


@command.command("retry", cls=QueryCommand)
@filter_options
@bulk_options
@click.option(
    "--edit", is_flag=True, help="Edit the arguments in $EDITOR first; for a single id."
)
@click.option(
    "--args",
    "arguments",
    metavar="JSON",
    help="Retry with these arguments instead; for a single id.",
)
@click.option("--unchecked", is_flag=True, help="Do not check new arguments.")
@selection_options
@keep_lines
def retry_dead(
    *,
    selection: AppSelection,
    bulk: BulkSelection,
    edit: bool,
    arguments: str | None,
    unchecked: bool,
) -> int:
    r"""Run dead letters again: by id, by filters, or all of them.

    The jobs keep their ids and their failed attempts, and may use all their attempts
    again. Several jobs are counted exactly and confirmed; jobs that die after the count
    are not retried.

    --args takes an object of keyword arguments or an array of positional arguments, as
    `durio enqueue` does. It replaces all arguments; one that is not given gets the
    task's default. New arguments are checked before anything is written, against the
    App of --app, or else against what workers have published.

    \b
    Examples:
      durio dead retry 0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55
      durio dead retry 0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55 --args '{"order_id": 43}'
      durio dead retry --task send --error timeout --older 1h
      durio dead retry --all --dry-run

    A job of a failed plan resumes its plan. If the plan is gone, or was cancelled, the
    job runs alone, and the answer says so.

    With --json, by id: {"jobs": [{"id", "ok", "before", "state", "error", "plan"}]};
    "plan" is null or {"id", "state", "alone", "text"}. Else {"counted", "done", "held",
    "alone", "dry_run"}; `held` jobs are locked by an open transaction.

    \b
    Exit codes: 1 some ids could not be retried; the rest were
                2 usage, arguments that do not fit, or no terminal for the question
    """
    if edit and arguments is not None:
        raise UsageError("--edit and --args are both given", cure="Give one.")
    if edit or arguments is not None:
        bulk.check()
        return retry_edited(selection, bulk, arguments, unchecked=unchecked)
    if unchecked:
        raise UsageError("--unchecked needs --args or --edit", cure="Leave it out.")
    return act_on_selected(selection, bulk, "retry")


@command.command("discard", cls=QueryCommand)
@filter_options
@bulk_options
@selection_options
@keep_lines
def discard_dead(*, selection: AppSelection, bulk: BulkSelection) -> int:
    r"""Delete dead letters for good: by id, by filters, or all of them.

    Asks for confirmation, also for a single id. To keep a copy that can be imported
    again, run `durio dead export` first. The counters of `durio dead totals` do not
    change.

    \b
    Examples:
      durio dead discard --reason unknown_task --older 7d
      durio dead discard --task send --limit 100 --yes

    With --json, by id: {"jobs": [{"id", "ok", "before", "state", "error"}]}; else
    {"counted", "done", "held", "dry_run"}; `held` jobs are locked by an open transaction.

    \b
    Exit codes: 1 some ids are not dead; the rest were deleted
                2 usage, or no terminal for the question
    """
    return act_on_selected(selection, bulk, "discard")


# --- export and import


@command.command("export", cls=QueryCommand)
@filter_words
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), metavar="FILE",
    help="A new file (default: standard output).",
)  # fmt: skip
@selection_options
@keep_lines
def export_dead(
    *, selection: AppSelection, filters: Filters, output: str | None
) -> None:
    r"""Write dead letters as JSON lines, for `durio dead import` and other programs.

    `durio dead import` restores every field except "key" and "run_at".

    \b
    Examples:
      durio dead export --task send -o send.jsonl
      durio dead export | jq -r '.errors[-1].type' | sort | uniq -c

    A line has {"durio", "id", "namespace", "task", "queue", "priority", "reason",
    "payload", "options", "errors", "retried", "losses", "lost", "snoozed", "claim_no",
    "created_at", "run_at", "started_at", "finished_at", "key"}; "durio" is the version
    of this format, "payload" is [args, kwargs].

    With --json: {"letters", "file"}; --json requires --output.
    """
    if selection.is_json and output is None:
        raise UsageError(
            "--json needs --output", cure="Leave it out: the lines are JSON already."
        )

    async def ask(app: App) -> int:
        search, _ = await filters.search(app, app.name)
        with open_output(output) as stream:
            return await write_dead_letters(app, search, stream)

    jobs = selection.run(ask)
    if selection.is_json:
        show_json({"letters": jobs, "file": output})
    elif output is not None:
        show_text(f"{filters.jobs_text(jobs)}{filters.text()} in {output}")


@command.command("import")
@click.argument("file", metavar="FILE")
@BY_OPTION
@selection_options
@keep_lines
def import_dead(*, selection: AppSelection, file: str, by: str | None) -> None:
    r"""Put exported dead letters into this store; `-` reads standard input.

    All lines are checked first. A bad line is reported by its number, and nothing is
    written. Jobs whose id is in the store already are skipped, so the same file can be
    imported twice. Imported jobs keep their App, queue, failed attempts and times, but
    not their idempotency key and due time. If you name an App, a line of another App is
    refused.

    A job of a plan is imported as a job without a plan. If it got the result of another
    job as its first argument, give it: durio dead retry ID --args JSON.

    \b
    Example:
      durio dead import send.jsonl --store sqlite:///other.db

    With --json: {"letters", "imported", "skipped"}.

    \b
    Exit codes: 2 the file cannot be read, or a line is not a dead letter
    """
    name = operator(by)

    async def ask(app: App) -> tuple[int, int]:
        bounds = app.settings.payload.bytes_max
        named = selection.scope(app)
        with open_input(file) as stream:

            def read() -> Iterator[StoredJob]:
                stream.seek(0)
                return read_dead_letters(stream, app.now(), bounds, named)

            return sum(1 for _ in read()), await restore(app, read, name)

    lines, written = selection.run_unscoped(ask)
    if selection.is_json:
        counts = {"letters": lines, "imported": written, "skipped": lines - written}
        show_json(counts)
    else:
        plural = "" if written == 1 else "s"
        text = f"{written or 'no'} dead letter{plural} imported"
        show_text(f"{text}, {lines - written} skipped")


# --- totals


@command.command("totals")
@selection_options
@keep_lines
def show_totals(*, selection: AppSelection) -> None:
    r"""Show how many jobs have died so far, by queue, task and type of error.

    These counters only grow; retrying or discarding a dead letter does not change them.
    Without an App, those of every App in the store are shown.

    \b
    Example:
      durio dead totals --name shop

    With --json: {"jobs_dead_lettered_total": [{"labels": {"queue", "task",
    "error_type"}, "value"}]}; a task begins with the name of its App.
    """

    async def ask(app: App) -> tuple[str, Sequence[DeathCount]]:
        name = selection.scope(app)
        whose = "" if name is None else f" of App {name}"
        return whose, await (await app.store()).tallies(name)

    whose, found = selection.run_unscoped(ask)
    tallies = sorted(found, key=lambda tally: (-tally.dead, tally))
    if selection.is_json:
        show_json({METRIC: [metric_fields(tally) for tally in tallies]})
        return
    rows = [[queue_of(t.lane), t.task, t.error_type, t.dead] for t in tallies]
    show_table(TOTALS, rows, f"no job{whose} ever died")
    if tallies:
        show_text(f"{sum(tally.dead for tally in tallies)} in all")


def metric_fields(tally: DeathCount) -> dict[str, Any]:
    labels = {
        "queue": queue_of(tally.lane),
        "task": tally.task,
        "error_type": tally.error_type,
    }
    return {"labels": labels, "value": tally.dead}
