"""`durio queues`: shows queues; pauses, bounds, drains, moves and empties them."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, ListSelection, list_options, selection_options
from durio.cli.main import keep_lines
from durio.cli.output import age, safe, show_json, show_table, show_text
from durio.cli.prompts import (
    BY_OPTION,
    DRY_RUN_OPTION,
    YES_OPTION,
    act_on_counted,
    confirm,
    operator,
    show_summary,
)
from durio.cli.queue_rows import (
    WAITING_STATES,
    check_known,
    known_queues,
    load_rows,
)
from durio.cli.table import Column
from durio.client.bulk import CountedJobs
from durio.client.namespaces import apps_in
from durio.client.queue_handle import check_reason_text
from durio.client.queue_rows import QueueRow, waiting_jobs_text
from durio.model.errors import UsageError
from durio.model.names import check_name, lane
from durio.model.quantities import format_duration, seconds
from durio.model.queues import MAXSIZE_MAX
from durio.ports.browse import Query
from durio.ports.control import (
    AS_IN_CODE,
    NO_BOUND,
    AuditNote,
    CancelJobs,
    MoveJobs,
    QueueChange,
)

POLL_SECONDS = 0.2


def close_and_wait(
    selection: AppSelection, queue: str, limit_seconds: float, by: str
) -> QueueRow:
    """Close a queue and wait until it is empty; return its state at the end."""
    resume = resume_command(selection, queue)

    async def ask(app: App) -> QueueRow:
        check_known([queue], await known_queues(app, app.name), app.name)
        refuse_paused(await find_queue_row(app, queue), queue, resume)
        close = QueueChange(closed=True)
        store, note = await app.store(), AuditNote(who=by)
        await store.set_queue(lane(app.name, queue), close, note)
        return await wait_until_empty(app, queue, limit_seconds, resume)

    try:
        return selection.run(ask)
    except KeyboardInterrupt:
        hint = f"{queue} stays closed; open it with: {resume}"
        click.echo(safe(hint), err=True)
        raise


async def find_queue_row(app: App, queue: str) -> QueueRow | None:
    """Return the current state of one queue; None if it was never used."""
    found = [row for row in await load_rows(app, app.name) if row.queue == queue]
    return found[0] if found else None


def resume_command(selection: AppSelection, queue: str) -> str:
    return f"durio queues resume {queue}{selection.flags()}"


def refuse_paused(row: QueueRow | None, queue: str, resume: str) -> None:
    """Raise UsageError for a paused queue with jobs, which would never become empty."""
    if row is not None and row.paused and row.depth:
        raise UsageError(
            f"queue {queue} is paused with {waiting_jobs_text(row.depth)}: it would never be empty",
            cure=f"Resume it first: {resume}",
        )


async def wait_until_empty(
    app: App, queue: str, limit_seconds: float, resume: str
) -> QueueRow:
    """Poll until no job waits or runs; raises TimeoutError."""
    deadline = app.clock.monotonic() + limit_seconds
    with drain_progress() as show:
        while True:
            row = await find_queue_row(app, queue)
            if row is not None:
                show(row)
                if not (row.depth or row.running):
                    return row
            if app.clock.monotonic() >= deadline:
                raise TimeoutError(
                    f"queue {queue} is not empty after {format_duration(limit_seconds)}: "
                    f"{remaining_text(row)}; it stays closed until: {resume}"
                )
            await app.clock.sleep(POLL_SECONDS)


def remaining_text(row: QueueRow | None) -> str:
    if row is None:
        return "no figures"
    parts = [
        f"{row.ready} ready",
        f"{row.scheduled + row.blocked} scheduled",
        f"{row.running} running",
    ]
    served = "" if row.workers else ", no worker serves it"
    return ", ".join(parts) + served


class DrainProgress:
    """Prints what is left: continuously on a terminal, once at the start elsewhere."""

    def __init__(self) -> None:
        self.is_live = sys.stderr.isatty()
        self.last = ""

    def __call__(self, row: QueueRow) -> None:
        text = remaining_text(row)
        if text == self.last:
            return
        if self.is_live:
            click.echo(f"\r{text.ljust(len(self.last))}", err=True, nl=False)
        elif not self.last:
            click.echo(f"draining: {text}", err=True)
        self.last = text


@contextmanager
def drain_progress() -> Generator[DrainProgress]:
    """Yield the progress display; end its line in any case."""
    progress = DrainProgress()
    try:
        yield progress
    finally:
        if progress.is_live and progress.last:
            click.echo("", err=True)


COLUMNS = (
    Column("queue", least=20),
    Column("state"),
    Column("ready", 1),
    Column("scheduled", 4),
    Column("running", 1),
    Column("dead", 2),
    Column("oldest", 3),
    Column("bound", 6),
    Column("workers", 5),
)
TYPED_ABOVE_JOBS = 100
DRAIN_SECONDS_MAX = 86400.0
# `limit --maxsize` also accepts these words.
BOUNDS = {"none": NO_BOUND, "code": AS_IN_CODE}


@click.group(
    "queues", short_help="List, pause, resume, limit, drain, move, purge queues."
)
@keep_lines
def command() -> None:
    r"""List queues; pause, resume, limit, drain, move and purge them.

    Queues belong to an App: --app, --name, DURIO_APP, DURIO_NAME, or the only App in
    the store. A change reaches every worker within a second and is recorded: `durio
    audit ls`.

    \b
    Exit codes:
      0  done
      1  not confirmed; nothing was changed
      2  usage, no such queue, several Apps, or no terminal for the question
      7  drain: timeout; the queue stays closed
      3, 4, 5  store, import of the App, schema
    """


@command.command("ls")
@list_options
@keep_lines
def list_queues(*, selection: ListSelection) -> None:
    r"""List the queues of an App, or with --all-apps of every App.

    Lists every queue that was ever used. `oldest`: how long the oldest ready job has
    waited. `bound`: waiting jobs / the most that may wait; * marks a bound set by
    `durio queues limit`, which overrides the code. `workers`: how many serve the queue.

    \b
    States:
      open    takes jobs and gives them to workers
      paused  gives no jobs to workers
      closed  takes no new jobs (may also be paused)
      over    above the soft bound that applies to queues without a bound

    With --json: {"queues": [{"queue", "namespace", "paused", "closed", "over", "ready",
    "scheduled", "blocked", "running", "dead", "oldest_at", "depth", "maxsize",
    "by_hand", "workers"}]}; "maxsize" is null without a bound.
    """

    async def ask(app: App, scope: str | None) -> tuple[list[QueueRow], float, str]:
        names = [scope] if scope else await apps_in(await app.store())
        lines = [line for name in names for line in await load_rows(app, name)]
        return lines, app.now(), f" of App {scope}" if scope else ""

    lines, now, whose = selection.run_list(ask)
    show_rows(selection, lines, now, f"no queues{whose}", with_app=selection.all_apps)


async def read_rows(app: App, queues: Sequence[str]) -> tuple[list[QueueRow], float]:
    """Return the given queues, and the time at which they were read."""
    lines = await load_rows(app, app.name)
    return [line for line in lines if line.queue in queues], app.now()


def show_rows(
    selection: AppSelection,
    lines: Sequence[QueueRow],
    now: float,
    none: str = "no queues",
    *,
    with_app: bool = False,
) -> None:
    if selection.is_json:
        show_json({"queues": [row_fields(line) for line in lines]})
        return
    columns = (Column("app", least=10), *COLUMNS) if with_app else COLUMNS
    rows = [
        [line.namespace, *cells(line, now)] if with_app else cells(line, now)
        for line in lines
    ]
    show_table(columns, rows, none)


def row_fields(row: QueueRow) -> dict[str, Any]:
    return {
        "queue": row.queue,
        "namespace": row.namespace,
        **asdict(row),
        "depth": row.depth,
    }


def cells(row: QueueRow, now: float) -> list[Any]:
    bound = "-" if row.maxsize is None else f"{row.depth}/{row.maxsize}"
    return [
        row.queue,
        row.state,
        row.ready,
        row.scheduled + row.blocked,
        row.running,
        row.dead,
        age(row.oldest_at, now),
        f"{bound}{'*' if row.by_hand else ''}",
        row.workers,
    ]


# --- pause, resume, limit


@command.command("pause")
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--reason", metavar="TEXT", help="Reason to record in the audit.")
@BY_OPTION
@selection_options
@keep_lines
def pause_queues(
    *,
    selection: AppSelection,
    queues: tuple[str, ...],
    reason: str | None,
    by: str | None,
) -> None:
    r"""Stop workers from starting jobs of these queues; running jobs continue.

    New jobs are accepted and wait. Workers give back jobs that they have claimed and
    not started; no attempt is counted.

    \b
    Example:
      durio queues pause mail

    With --json: {"queues": [...]}, with the fields of `durio queues ls`.
    """
    why = None if reason is None else check_reason_text(reason)
    change_queues(selection, queues, QueueChange(paused=True, reason=why), by)


@command.command("resume")
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@BY_OPTION
@selection_options
@keep_lines
def resume_queues(
    *, selection: AppSelection, queues: tuple[str, ...], by: str | None
) -> None:
    r"""Undo `pause` and `drain`: accept new jobs and let workers run them.

    \b
    Example:
      durio queues resume mail newsletter

    With --json: {"queues": [...]}, with the fields of `durio queues ls`.
    """
    change_queues(selection, queues, QueueChange(paused=False, closed=False), by)


@command.command("limit")
@click.argument("queue", metavar="QUEUE")
@click.option(
    "--maxsize",
    required=True,
    metavar="N|none|code",
    help="How many jobs may wait; none: no bound; code: back to the value in the code.",
)
@BY_OPTION
@selection_options
@keep_lines
def limit_queue(
    *, selection: AppSelection, queue: str, maxsize: str, by: str | None
) -> None:
    r"""Set how many jobs may wait in a queue; overrides the code.

    Jobs already in the queue stay, even above the bound. Retries and rescued jobs are
    always accepted.

    \b
    Examples:
      durio queues limit mail --maxsize 1000
      durio queues limit mail --maxsize code

    With --json: {"queues": [...]}, with the fields of `durio queues ls`.
    """
    change_queues(selection, [queue], QueueChange(maxsize=parse_bound(maxsize)), by)


def parse_bound(text: str) -> int:
    if text in BOUNDS:
        return BOUNDS[text]
    if text.isascii() and text.isdigit() and 0 < int(text[:20]) <= MAXSIZE_MAX:
        return int(text)
    raise UsageError(
        f"--maxsize cannot be {text!r}",
        cure=f"Give a number from 1 to {MAXSIZE_MAX}, none or code.",
    )


def change_queues(
    selection: AppSelection, queues: Sequence[str], wanted: QueueChange, by: str | None
) -> None:
    """Change all of these queues, then show them; an unknown name changes none."""
    name = operator(by)

    async def ask(app: App) -> tuple[list[QueueRow], float]:
        check_known(queues, await known_queues(app, app.name), app.name)
        store = await app.store()
        for queue in dict.fromkeys(queues):
            note = AuditNote(who=name)
            await store.set_queue(lane(app.name, queue), wanted, note)
        return await read_rows(app, queues)

    lines, now = selection.run(ask)
    show_rows(selection, lines, now)


# --- drain


@command.command("drain")
@click.argument("queue", metavar="QUEUE")
@click.option("--timeout", metavar="DURATION", help="Longest wait (default 24h).")
@BY_OPTION
@selection_options
@keep_lines
def drain_queue(
    *, selection: AppSelection, queue: str, timeout: str | None, by: str | None
) -> None:
    r"""Close a queue to new jobs and wait until no job waits or runs in it.

    Until it is reopened, enqueueing into the queue raises an error; retries are still
    accepted. The queue stays closed after the drain, after Ctrl-C and after a timeout:
    `durio queues resume` reopens it.

    \b
    Example:
      durio queues drain mail --timeout 10m

    With --json: {"queue", "closed", "waiting", "running"}, at the end.

    \b
    Exit codes: 2 usage, no such queue, or a paused queue with jobs (it is not closed)
                7 timeout; 130 interrupted; the queue stays closed
    """
    limit = DRAIN_SECONDS_MAX if timeout is None else seconds(timeout, "--timeout")
    row = close_and_wait(selection, queue, limit, operator(by))
    if selection.is_json:
        counts = {"waiting": row.depth, "running": row.running}
        show_json({"queue": queue, "closed": row.closed, **counts})
    else:
        show_text(
            f"{queue} is empty and stays closed; {resume_command(selection, queue)}"
        )


# --- move, purge


@command.command("move")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--create", is_flag=True, help="Allow a TO that does not exist yet.")
@YES_OPTION
@DRY_RUN_OPTION
@BY_OPTION
@selection_options
@keep_lines
def move_jobs(
    *,
    selection: AppSelection,
    source: str,
    target: str,
    create: bool,
    yes: bool,
    dry_run: bool,
    by: str | None,
) -> None:
    r"""Move the waiting jobs of a queue to another; running jobs stay.

    Priority, due time and order are kept. The bound of TO is ignored.

    \b
    Examples:
      durio queues move mail newsletter
      durio queues move mail newsletter --yes --by deploy

    With --json: {"counted", "done", "held", "dry_run"}. `held` jobs were
    not changed: an open transaction locks them.

    \b
    Exit codes: 1 not confirmed; 2 usage, no such queue; nothing was moved
    """
    if source == target:
        raise UsageError(f"{source} and {target} are the same queue", cure="Name two.")
    wanted = [source] if create else [source, target]
    app_name, counted = count_waiting(selection, source, wanted)
    jobs, jobs_text = counted.limit, waiting_jobs_text(counted.limit)
    if not jobs or dry_run:
        words = f"{jobs_text} of queue {source} to move"
        show_summary(selection, jobs, words, dry_run=dry_run)
        return
    to = check_name("queue", target)
    confirm(f"{jobs_text} of queue {source} will move to {to}", yes=yes)
    action = MoveJobs(lane(app_name, target))
    done = act_on_counted(selection, action, counted, "move", by)
    words = f"{waiting_jobs_text(done.jobs)} moved from {source} to {target}"
    show_summary(selection, jobs, words + done.held_text("move"), done)


@command.command("purge")
@click.argument("queue", metavar="QUEUE")
@YES_OPTION
@DRY_RUN_OPTION
@BY_OPTION
@selection_options
@keep_lines
def purge_queue(
    *, selection: AppSelection, queue: str, yes: bool, dry_run: bool, by: str | None
) -> None:
    r"""Cancel all waiting jobs of a queue; running jobs and dead letters stay.

    Cancelled jobs are not deleted: `durio jobs ls --state cancelled` lists them and
    `durio jobs retry` runs them again. For more than 100 jobs you must type the name of
    the queue. Jobs enqueued after the count are not cancelled.

    \b
    Examples:
      durio queues purge newsletter --dry-run
      durio queues purge newsletter --yes

    With --json: {"counted", "done", "held", "dry_run"}. `held` jobs were
    not changed: an open transaction locks them.

    \b
    Exit codes: 1 not confirmed; 2 usage, no such queue; nothing was cancelled
    """
    _, counted = count_waiting(selection, queue, [queue])
    jobs, jobs_text = counted.limit, waiting_jobs_text(counted.limit)
    if not jobs or dry_run:
        words = f"{jobs_text} of queue {queue} to cancel"
        show_summary(selection, jobs, words, dry_run=dry_run)
        return
    typed = queue if jobs > TYPED_ABOVE_JOBS else None
    confirm(f"{jobs_text} of queue {queue} will be cancelled", yes=yes, typed=typed)
    done = act_on_counted(selection, CancelJobs(), counted, "purge", by)
    words = f"{waiting_jobs_text(done.jobs)} cancelled{done.held_text('cancel')}"
    show_summary(selection, jobs, words, done)


def count_waiting(
    selection: AppSelection, queue: str, wanted: Sequence[str]
) -> tuple[str, CountedJobs]:
    """Return the App's name and its waiting jobs; raise if a queue in `wanted` is unknown."""

    async def ask(app: App) -> tuple[str, CountedJobs]:
        name = app.name
        check_known(wanted, await known_queues(app, name), name)
        query = Query(namespace=name, lane=lane(name, queue), states=WAITING_STATES)
        counted = await (await app.store()).count(query)
        return name, CountedJobs(query, counted.mark, counted.jobs)

    return selection.run(ask)
