"""`durio workers`: who works on a store, what they do, and how to drain them."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import Place, place_options
from durio.cli.asking import Answered, ask_workers, failed, find_workers
from durio.cli.confirm import BY_OPTION, YES_OPTION, confirm, who
from durio.cli.main import keep_lines
from durio.cli.output import ago, show_json, show_table, show_text
from durio.cli.stacks import report_text, stack_text
from durio.model.duration import seconds, spoken
from durio.model.errors import UsageError
from durio.model.job import moment
from durio.ports.browse import WorkerRow

COLUMNS = (
    *("id", "worker", "app", "queues", "running", "ended", "cpu", "memory"),
    *("children", "lease", "version", "started"),
)
TIMEOUT = 7
MIB = 2**20

TIMEOUT_OPTION = click.option(
    "--timeout", default="10", metavar="SECONDS", help="For the answer to come (10)."
)
IDS = click.argument("ids", nargs=-1, metavar="ID...")
ALL_OPTION = click.option("--all", "is_all", is_flag=True, help="Every live worker.")


@click.group("workers", short_help="List workers, look into them, drain them.")
def command() -> None:
    """List workers, look into them, drain them.

    A worker is named by its number or by its host/pid, as `ls` shows them. What is asked
    of a worker goes through the store, so it works from wherever the store is in reach;
    a worker whose event loop is blocked answers with its next heartbeat.
    """


@command.command("ls")
@place_options
@keep_lines
def list_workers(*, place: Place) -> None:
    r"""List the registered workers, the oldest first.

    A worker whose lease is over is dead or hangs; its jobs are given to others. Without
    --app, --name or DURIO_NAME the workers of every App in the store are listed. "cpu" is
    the average since its start, 100 % is one core; cpu and memory count children in.

    \b
    Examples:
      durio workers ls
      durio workers ls --json | jq '.workers[] | select(.rss_bytes > 500000000)'

    With --json: {"workers": [{"id", "namespace", "name", "host", "pid", "queues",
    "concurrency", "slots", "weights", "prefetch", "strict", "version", "started_at",
    "running", "lease_seconds_left", "cpu_seconds", "cpu_percent", "rss_bytes", "ended",
    "children"}]}; "queues" is null when it serves all of them, the last five before its
    first heartbeat.
    """

    async def ask(app: App) -> tuple[list[WorkerRow], float]:
        name = app.name if place.is_named() else None
        return await (await app.store()).workers(name), app.now()

    rows, now = place.ask(ask)
    if place.is_json:
        show_json({"workers": [worker_fields(row, now) for row in rows]})
    else:
        show_table(COLUMNS, [cells(row, now) for row in rows], "no workers")


@command.command("show")
@click.argument("worker", metavar="ID")
@TIMEOUT_OPTION
@BY_OPTION
@place_options
@keep_lines
def show_worker(*, place: Place, worker: str, timeout: str, by: str | None) -> int:
    r"""Ask a worker what it does right now.

    Its active attempts with their age and progress, jobs that it has reserved (claimed
    and not started), the tasks that it knows, queues and weights, loop lag, and figures.

    \b
    Examples:
      durio workers show 3
      durio workers show web-1/4711 --json | jq .workers[0].answer.active

    With --json: {"workers": [{"id", "name", "ok", "answer", "error"}]}; "answer" has
    {"active", "reserved", "registered", "stats", "queues", "slots", "weights",
    "loop_lag_seconds", ...}; the lag is null when the loop is blocked.

    \b
    Exit codes: 0 answered; 1 no such worker; 7 it does not answer; 3 store
    """
    found = order(place, (worker,), "report", timeout, by)
    return show_answers(place, found, report_text)


@command.command("stack")
@IDS
@ALL_OPTION
@TIMEOUT_OPTION
@BY_OPTION
@place_options
@keep_lines
def show_stacks(
    *, place: Place, ids: tuple[str, ...], is_all: bool, timeout: str, by: str | None
) -> int:
    r"""Show the live stacks of workers: where every attempt and thread is right now.

    Also of a worker that is stuck: the answer does not need its event loop. Child
    processes are asked too, unless the loop is blocked.

    \b
    Examples:
      durio workers stack 3
      durio workers stack --all --json

    With --json: {"workers": [{"id", "name", "ok", "answer", "error"}]}; "answer" has
    {"attempts": [{"job_id", "task", "queue", "attempt", "seconds", "where", "stack"}],
    "threads": [{"name", "stack"}], "children": [{"pid", "stack"}], "left_out",
    "loop_lag_seconds"}.

    \b
    Exit codes: 0 all answered; 1 no such worker; 7 one does not answer; 3 store
    """
    check_chosen(ids, is_all=is_all)
    found = order(place, ids, "stack", timeout, by)
    return show_answers(place, found, stack_text)


@command.command("drain")
@IDS
@ALL_OPTION
@TIMEOUT_OPTION
@BY_OPTION
@YES_OPTION
@place_options
@keep_lines
def drain_workers(
    *,
    place: Place,
    ids: tuple[str, ...],
    is_all: bool,
    timeout: str,
    by: str | None,
    yes: bool,
) -> int:
    r"""Let workers end: no more claims, running jobs may finish within the grace.

    The same as one SIGTERM, asked through the store: what still runs at the end of the
    grace is given back, uncharged. A supervisor starts no other worker in its place. The
    answer says that it has begun; see `durio workers ls` for the end.

    \b
    Examples:
      durio workers drain 3 web-1/4711
      durio workers drain --all --yes

    With --json: {"workers": [{"id", "name", "ok", "answer", "error"}]}; "answer" has
    {"draining", "running"}.

    \b
    Exit codes: 0 all drain; 1 no such worker; 7 one does not answer; 2 --all without a
    terminal and without --yes; 3 store
    """
    check_chosen(ids, is_all=is_all)
    if is_all:
        confirm("every live worker will be drained", yes=yes)
    found = order(place, ids, "drain", timeout, by)
    return show_answers(place, found, drain_text)


def check_chosen(ids: Sequence[str], *, is_all: bool) -> None:
    """Either some or all."""
    if bool(ids) == is_all:
        told = "workers and --all are both given" if ids else "no worker is named"
        raise UsageError(told, cure="Give ids from durio workers ls, or --all.")


def order(
    place: Place, ids: Sequence[str], verb: str, timeout: str, by: str | None
) -> list[Answered]:
    """Ask workers, and wait for their answers."""
    wait_seconds = seconds(timeout, "--timeout")
    name = who(by)

    async def ask(app: App) -> list[Answered]:
        store = await app.store()
        rows = await store.workers(app.name if place.is_named() else None)
        chosen = find_workers(rows, ids)
        return await ask_workers(
            store, app.clock, chosen, verb, by=name, wait_seconds=wait_seconds
        )

    return place.ask(ask)


def show_answers(place: Place, found: Sequence[Answered], text: Any) -> int:
    """Each answer, or why there is none; the exit code."""
    if place.is_json:
        show_json({"workers": [answered.fields() for answered in found]})
    else:
        for answered in found:
            told = (
                failed(answered) if answered.answer is None else text(answered.answer)
            )
            show_text(told)
        if not found:
            show_text("no workers")
    return 0 if all(answered.answer is not None for answered in found) else TIMEOUT


def drain_text(answer: dict[str, Any]) -> str:
    """What a worker said to a drain."""
    return f"{answer['worker']}  {answer['name']}  drains; {answer['running']} jobs run"


def worker_fields(row: WorkerRow, now: float) -> dict[str, Any]:
    """A worker as data."""
    info, vitals = dict(row.info), row.vitals
    return {
        "id": row.id,
        **info,
        "started_at": moment(info["started_at"]),
        "running": row.running,
        "lease_seconds_left": round(max(0.0, row.lease_seconds_left), 3),
        "cpu_seconds": None if vitals is None else vitals.cpu_seconds,
        "cpu_percent": cpu_percent(row, now),
        "rss_bytes": None if vitals is None else vitals.rss_bytes,
        "ended": None if vitals is None else vitals.ended,
        "children": None if vitals is None else vitals.children,
    }


def cpu_percent(row: WorkerRow, now: float) -> float | None:
    """CPU time since its start, by the time that has passed."""
    passed = now - row.info["started_at"]
    if row.vitals is None or passed <= 0:
        return None
    return round(100 * row.vitals.cpu_seconds / passed, 1)


def cells(row: WorkerRow, now: float) -> list[Any]:
    """A worker as a line."""
    info, vitals, left = row.info, row.vitals, row.lease_seconds_left
    percent = cpu_percent(row, now)
    return [
        row.id,
        info["name"],
        info["namespace"],
        "all" if info["queues"] is None else ", ".join(with_slots(info)),
        f"{row.running} of {info['concurrency']}",
        None if vitals is None else vitals.ended,
        None if percent is None else f"{percent:g} %",
        None if vitals is None else f"{vitals.rss_bytes // MIB} MiB",
        None if vitals is None else vitals.children,
        spoken(left) if left > 0 else "over",
        info["version"],
        ago(moment(info["started_at"]), now),
    ]


def with_slots(info: Mapping[str, Any]) -> list[str]:
    """Its queues, in the words of the command line."""
    slots: Mapping[str, int] = info.get("slots") or {}
    return [f"{q}={slots[q]}" if q in slots else q for q in info["queues"]]
