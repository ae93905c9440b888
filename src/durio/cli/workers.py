"""`durio workers`: lists workers, sends them commands through the store, drains them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from durio.app.app import App
from durio.app.worker_commands import WorkerResponse, ask_workers, find_workers
from durio.app.worker_stacks import (
    attempt_line,
    job_line,
    stack_text,
    worker_heading,
)
from durio.cli.apps import AppSelection, ListSelection, list_options, selection_options
from durio.cli.main import keep_lines
from durio.cli.output import age, show_json, show_table, show_text, to_json
from durio.cli.prompts import BY_OPTION, YES_OPTION, confirm, operator
from durio.cli.table import Column
from durio.model.errors import UsageError
from durio.model.job import utc_datetime
from durio.model.quantities import counted, format_duration, seconds
from durio.ports.browse import WorkerRow


def no_response_text(response: WorkerResponse) -> str:
    """Return why there is no answer, and what the store knows about the worker."""
    row, info = response.row, response.row.info
    return (
        f"{row.id}  {info['name']}  {response.reason} (lease {row.lease_text()}, "
        f"pid {info['pid']} on {info['host']}, {counted(row.running, 'job')})"
    )


WIDTH = 12
MIB = 2**20


def report_text(answer: Mapping[str, Any]) -> str:
    stats = answer["stats"]
    figures = {
        "app": f"{answer['namespace']}, durio {answer['version']}",
        "queues": ", ".join(answer["queues"]) or "all",
        "weights": pairs_text(answer["weights"]),
        "slots": pairs_text(answer["slots"]),
        "running": f"{stats['running']} of {stats['concurrency']}",
        "reserved": stats["reserved"],
        "ended": stats["ended"],
        "cpu": format_duration(stats["cpu_seconds"]),
        "memory": f"{stats['rss_bytes'] // MIB} MiB",
        "children": stats["children"],
        "tasks": ", ".join(answer["registered"]),
    }
    lines = [worker_heading(answer)]
    lines += [
        f"  {name:<{WIDTH}}{value}" for name, value in figures.items() if value != ""
    ]
    lines += section("active", [active_line(each) for each in answer["active"]])
    lines += section("reserved", [job_line(each) for each in answer["reserved"]])
    return "\n".join(lines)


def section(title: str, lines: Sequence[str]) -> list[str]:
    """Return lines under a title; nothing if there are no lines."""
    return [title, *(f"  {line}" for line in lines)] if lines else []


def pairs_text(values: Mapping[str, Any]) -> str:
    """Return text such as `high=4, low=1`."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def active_line(attempt: Mapping[str, Any]) -> str:
    hard = attempt["hard_seconds"]
    limit = "no limit" if hard is None else f"limit {format_duration(hard)}"
    progress = attempt["progress"]
    progress_text = "" if progress is None else f", progress {to_json(progress)}"
    return f"{attempt_line(attempt)}, {limit}{progress_text}"


COLUMNS = (
    Column("id"),
    Column("worker", least=20),
    Column("running"),
    Column("lease", 1),
    Column("queues", 2, least=10),
    Column("app", 3, least=10),
    Column("age", 4),
    Column("ended", 5),
    Column("memory", 6),
    Column("cpu", 7),
    Column("children", 8),
    Column("version", 9),
)
EXIT_NO_RESPONSE = 7

TIMEOUT_OPTION = click.option(
    "--timeout",
    default="10",
    metavar="SECONDS",
    help="Longest wait for an answer (default 10).",
)
IDS = click.argument("ids", nargs=-1, metavar="ID...")
ALL_OPTION = click.option(
    "--all", "is_all", is_flag=True, help="All live workers of the App."
)


@click.group("workers", short_help="List, inspect and drain workers.")
def command() -> None:
    """List, inspect and drain workers.

    Name a worker by its number or its host/pid; `ls` shows both. Requests go through
    the store, so any machine that can reach the store can send them. A worker whose
    event loop is blocked answers with its next heartbeat.
    """


@command.command("ls")
@list_options
@keep_lines
def list_workers(*, selection: ListSelection) -> None:
    r"""List the registered workers, oldest first.

    A worker whose lease has expired is dead or hangs; others take over its jobs. Lists
    workers of one App (--app, --name, DURIO_APP, DURIO_NAME, or the only App in the
    store), or with --all-apps of every App. "cpu" is the average since the start, 100 %
    is one core; CPU and memory include child processes.

    \b
    Examples:
      durio workers ls
      durio workers ls --json | jq '.workers[] | select(.rss_bytes > 500000000)'

    With --json: {"workers": [{"id", "namespace", "name", "host", "pid", "queues",
    "concurrency", "slots", "weights", "prefetch", "strict", "version", "started_at",
    "running", "lease_seconds_left", "cpu_seconds", "cpu_percent", "rss_bytes", "ended",
    "children"}]}; "queues" is null when it serves all of them; the last five are null
    before its first heartbeat.
    """

    async def ask(app: App, scope: str | None) -> tuple[list[WorkerRow], float]:
        return await (await app.store()).workers(scope), app.now()

    rows, now = selection.run_list(ask)
    if selection.is_json:
        show_json({"workers": [worker_fields(row, now) for row in rows]})
    else:
        show_table(COLUMNS, [cells(row, now) for row in rows], "no workers")


@command.command("show")
@click.argument("worker", metavar="ID")
@TIMEOUT_OPTION
@BY_OPTION
@selection_options
@keep_lines
def show_worker(
    *, selection: AppSelection, worker: str, timeout: str, by: str | None
) -> int:
    r"""Show what a worker is doing now.

    Shows active attempts with age and progress, reserved jobs (claimed, not started),
    known tasks, queues and weights, event-loop lag, and counters.

    \b
    Examples:
      durio workers show 3
      durio workers show web-1/4711 --json | jq .workers[0].answer.active

    With --json: {"workers": [{"id", "name", "ok", "answer", "error"}]}; "answer" has
    {"active", "reserved", "registered", "stats", "queues", "slots", "weights",
    "loop_lag_seconds", ...}; the lag is null when the loop is blocked.

    \b
    Exit codes: 0 answered; 1 no such worker; 7 no answer; 3 store
    """
    found = command_workers(selection, (worker,), "report", timeout, by)
    return show_responses(selection, found, report_text)


@command.command("stack")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--all", "is_all", is_flag=True, help="Also show every other thread of the process."
)
@TIMEOUT_OPTION
@BY_OPTION
@selection_options
@keep_lines
def show_stacks(
    *,
    selection: AppSelection,
    ids: tuple[str, ...],
    is_all: bool,
    timeout: str,
    by: str | None,
) -> int:
    r"""Show live stack traces: the line where each running job is now.

    Without ID, every live worker is asked. Frames of your code come first; frames of
    Durio are folded into one line. --all shows all frames of every thread. This also
    works when a worker is stuck: the answer does not need its event loop. Child
    processes are included, unless the event loop is blocked.

    \b
    Examples:
      durio workers stack
      durio workers stack 3 --all

    With --json: {"workers": [{"id", "name", "ok", "answer", "error"}]}; "answer" has
    {"attempts": [{"job_id", "task", "queue", "attempt", "seconds", "where", "stack"}],
    "threads": [{"name", "stack"}], "children": [{"pid", "stack"}], "left_out",
    "loop_lag_seconds"}.

    \b
    Exit codes: 0 all answered; 1 no such worker; 7 some did not answer; 3 store
    """
    found = command_workers(selection, ids, "stack", timeout, by)
    return show_responses(selection, found, partial(stack_text, is_all=is_all))


@command.command("drain")
@IDS
@ALL_OPTION
@TIMEOUT_OPTION
@BY_OPTION
@YES_OPTION
@selection_options
@keep_lines
def drain_workers(
    *,
    selection: AppSelection,
    ids: tuple[str, ...],
    is_all: bool,
    timeout: str,
    by: str | None,
    yes: bool,
) -> int:
    r"""Stop workers gracefully: claim no more jobs, finish the running ones.

    Works like one SIGTERM, sent through the store: jobs that still run after the grace
    period are given back, and the attempt is not counted. A supervisor does not replace a
    drained worker. `durio workers ls` shows when the drain has ended.

    \b
    Examples:
      durio workers drain 3 web-1/4711
      durio workers drain --all --yes

    With --json: {"workers": [{"id", "name", "ok", "answer", "error"}]}; "answer" has
    {"draining", "running"}.

    \b
    Exit codes: 0 all drain; 1 no such worker; 7 some did not answer; 2 --all without a
    terminal and without --yes; 3 store
    """
    check_chosen(ids, is_all=is_all)
    if is_all:
        confirm("every live worker of the App will be drained", yes=yes)
    found = command_workers(selection, ids, "drain", timeout, by)
    return show_responses(selection, found, drain_text)


def check_chosen(ids: Sequence[str], *, is_all: bool) -> None:
    if bool(ids) == is_all:
        problem = "workers and --all are both given" if ids else "no worker is named"
        raise UsageError(problem, cure="Give ids from durio workers ls, or --all.")


def command_workers(
    selection: AppSelection, ids: Sequence[str], verb: str, timeout: str, by: str | None
) -> list[WorkerResponse]:
    """Send a command to workers and wait for their answers."""
    wait_seconds = seconds(timeout, "--timeout")
    name = operator(by)

    async def ask(app: App) -> list[WorkerResponse]:
        store = await app.store()
        scope = selection.scope(app) if ids else app.name
        rows = await store.workers(scope)
        chosen = find_workers(rows, ids, selection.flags())
        return await ask_workers(
            store, app.clock, chosen, verb, by=name, wait_seconds=wait_seconds
        )

    return selection.run_unscoped(ask) if ids else selection.run(ask)


def show_responses(
    selection: AppSelection, responses: Sequence[WorkerResponse], text: Any
) -> int:
    """Print each answer, or why there is none; return the exit code."""
    if selection.is_json:
        show_json({"workers": [answered.fields() for answered in responses]})
    else:
        for answered in responses:
            shown = (
                no_response_text(answered)
                if answered.answer is None
                else text(answered.answer)
            )
            show_text(shown)
        if not responses:
            show_text("no workers")
    return (
        0
        if all(answered.answer is not None for answered in responses)
        else EXIT_NO_RESPONSE
    )


def drain_text(answer: dict[str, Any]) -> str:
    running = counted(answer["running"], "running job")
    return f"{answer['worker']}  {answer['name']}  drains: {running}"


def worker_fields(row: WorkerRow, now: float) -> dict[str, Any]:
    info, vitals = dict(row.info), row.vitals
    return {
        "id": row.id,
        **{name: value for name, value in info.items() if name != "tasks"},
        "started_at": utc_datetime(info["started_at"]),
        "running": row.running,
        "lease_seconds_left": round(max(0.0, row.lease_seconds_left), 3),
        "cpu_seconds": None if vitals is None else vitals.cpu_seconds,
        "cpu_percent": cpu_percent(row, now),
        "rss_bytes": None if vitals is None else vitals.rss_bytes,
        "ended": None if vitals is None else vitals.ended,
        "children": None if vitals is None else vitals.children,
    }


def cpu_percent(row: WorkerRow, now: float) -> float | None:
    """Return CPU time since the worker's start as a share of the elapsed time."""
    passed = now - row.info["started_at"]
    if row.vitals is None or passed <= 0:
        return None
    return round(100 * row.vitals.cpu_seconds / passed, 1)


def cells(row: WorkerRow, now: float) -> list[Any]:
    info, vitals, left = row.info, row.vitals, row.lease_seconds_left
    percent = cpu_percent(row, now)
    return [
        row.id,
        info["name"],
        f"{row.running} of {info['concurrency']}",
        format_duration(left) if left > 0 else "over",
        "all" if info["queues"] is None else ", ".join(with_slots(info)),
        info["namespace"],
        age(utc_datetime(info["started_at"]), now),
        None if vitals is None else vitals.ended,
        None if vitals is None else f"{vitals.rss_bytes // MIB} MiB",
        None if percent is None else f"{percent:g} %",
        None if vitals is None else vitals.children,
        info["version"],
    ]


def with_slots(info: Mapping[str, Any]) -> list[str]:
    """Return the worker's queues in the form of `durio worker -q`, such as `high=4`."""
    slots: Mapping[str, int] = info.get("slots") or {}
    return [f"{q}={slots[q]}" if q in slots else q for q in info["queues"]]
