"""`durio breakers`: list and show circuit breakers; open, close and reset them by hand."""

from typing import Any

import click
from msgspec import to_builtins

from durio.app.app import App
from durio.cli.apps import AppSelection, ListSelection, list_options, selection_options
from durio.cli.main import keep_lines
from durio.cli.output import age, show_json, show_table, show_text
from durio.cli.prompts import BY_OPTION, operator
from durio.cli.table import Column
from durio.client.breakers import (
    ShownBreaker,
    find_breaker,
    force_breaker,
    list_breakers,
)
from durio.client.namespaces import apps_in
from durio.client.queue_handle import check_reason_text
from durio.model.breaker import BreakerRecord, ForcedState, totals
from durio.model.explanation import moment
from durio.model.job import utc_datetime
from durio.model.quantities import counted

COLUMNS = (
    Column("breaker", least=8),
    Column("state"),
    Column("since"),
    Column("calls", 1),
    Column("failed"),
    Column("waiting"),
    Column("why", 2, least=20),
)
APP = Column("app", least=8)
BREAKER = click.argument("breaker", metavar="NAME")
REASON_OPTION = click.option(
    "--reason", metavar="TEXT", help="Reason to show with the breaker."
)


@click.group("breakers", short_help="List breakers; open, close or reset one by hand.")
@keep_lines
def command() -> None:
    r"""Show circuit breakers, and open or close them by hand.

    A breaker is closed while calls are made. It opens when too many calls fail: then jobs of
    its tasks wait, and use no attempt. When its open time is over it is half open: at most
    two jobs run, and the first result closes it, or opens it again.

    \b
    Exit codes:
      0  done
      2  usage, or no such breaker
      3, 4, 5  store, import of the App, schema
    """


@command.command("ls")
@list_options
@keep_lines
def list_all(*, selection: ListSelection) -> None:
    r"""List breakers by name, with the calls of their last window.

    Workers write the breakers of their code to the store when they start; a breaker that no
    worker has written is not listed.

    \b
    Examples:
      durio breakers ls
      durio breakers ls --json | jq -r '.breakers[] | select(.state != "closed").name'

    With --json: {"breakers": [...]}, as `durio breakers show --json` shows each.
    """

    async def ask(app: App, scope: str | None) -> tuple[list[ShownBreaker], float]:
        store = await app.store()
        names = await apps_in(store) if scope is None else [scope]
        found = [one for name in names for one in await list_breakers(store, name)]
        return found, app.now()

    found, now = selection.run_list(ask)
    if selection.is_json:
        show_json({"breakers": [fields(one, now) for one in found]})
        return
    with_app = selection.all_apps
    rows = [([one.namespace] if with_app else []) + cells(one, now) for one in found]
    show_table((APP, *COLUMNS) if with_app else COLUMNS, rows, "no breakers")


def cells(one: ShownBreaker, now: float) -> list[Any]:
    record = one.record
    calls, failed = totals(record, now)
    return [
        one.name,
        state_text(record),
        age(utc_datetime(record.since), now),
        calls,
        failed,
        one.waiting,
        record.changes[-1].why if record.changes else "-",
    ]


def state_text(record: BreakerRecord) -> str:
    state = record.state.replace("_", " ")
    return state if record.forced is None else f"{state} by hand"


def fields(one: ShownBreaker, now: float) -> dict[str, Any]:
    """Return a breaker as JSON, with times as text."""
    record = one.record
    calls, failed = totals(record, now)
    force = record.forced
    return {
        "name": one.name,
        "namespace": one.namespace,
        "state": record.state,
        "since": utc_datetime(record.since),
        "until": utc_datetime(record.until),
        "forced": force
        and {"by": force.by, "at": utc_datetime(force.at), "reason": force.reason},
        "calls": calls,
        "failures": failed,
        "waiting": one.waiting,
        "probes": list(record.probes),
        "last_error": record.last_error,
        "rule": to_builtins(record.rule),
        "changes": [
            {**to_builtins(change), "at": utc_datetime(change.at)}
            for change in record.changes
        ],
    }


@command.command("show")
@BREAKER
@selection_options
@keep_lines
def show_one(*, selection: AppSelection, breaker: str) -> None:
    r"""Show a breaker: its state, its numbers, and its last changes.

    \b
    Example:
      durio breakers show smtp

    With --json: {"name", "namespace", "state", "since", "until", "forced", "calls",
    "failures", "waiting", "probes", "last_error", "rule", "changes"}. "state" is "closed",
    "open" or "half_open"; "forced" is null or {"by", "at", "reason"}; "calls" and "failures"
    are those of the last window; "waiting" is the number of jobs that the breaker keeps
    back; "probes" are the ids of the jobs that try the dependency. A change has {"at",
    "before", "state", "why"}, and "by" if a person made it; the last 20 are kept.
    """

    async def ask(app: App) -> tuple[ShownBreaker, float]:
        now = app.now()
        store = await app.store()
        return await find_breaker(store, app.name, breaker, app.breakers, now), now

    show(selection, *selection.run(ask))


def show(selection: AppSelection, one: ShownBreaker, now: float) -> None:
    if selection.is_json:
        show_json(fields(one, now))
        return
    for line in lines(one, now, selection.flags()):
        show_text(line)


def lines(one: ShownBreaker, now: float, flags: str) -> list[str]:
    """Return the description of a breaker, for people."""
    record = one.record
    calls, failed = totals(record, now)
    until = "" if record.until is None else f", until {moment(record.until)}"
    found = [
        f"{one.name} is {state_text(record)} since {moment(record.since)}{until}",
        f"  {record.rule.in_words()}",
        f"  {counted(calls, 'call')} in the last window, {counted(failed, 'failure')}",
        f"  {counted(one.waiting, 'job')} waiting",
    ]
    if record.forced is not None and record.forced.reason:
        found.append(f"  {record.forced.by}: {record.forced.reason}")
    if record.probes:
        found.append(f"  probes: {', '.join(record.probes)}")
    if record.last_error:
        found.append(f"  last failure: {record.last_error}")
    for change in record.changes:
        by = "" if change.by is None else f", {change.by}"
        state = change.state.replace("_", " ")
        found.append(f"  {moment(change.at)}  {state}: {change.why}{by}")
    if record.state != "closed" or record.forced is not None:
        found.append(
            f"durio breakers reset {one.name}{flags}   # close it; it works by itself again"
        )
    return found


# --- by hand


@command.command("open")
@BREAKER
@REASON_OPTION
@BY_OPTION
@selection_options
@keep_lines
def open_one(
    *, selection: AppSelection, breaker: str, reason: str | None, by: str | None
) -> None:
    r"""Hold the jobs of a breaker back, until it is closed or reset.

    Running jobs end. Workers know within a second.

    \b
    Example:
      durio breakers open smtp --reason "the provider does maintenance until noon"

    With --json: the fields of `durio breakers show`.
    """
    force_one(selection, breaker, "open", reason, by)


@command.command("close")
@BREAKER
@REASON_OPTION
@BY_OPTION
@selection_options
@keep_lines
def close_one(
    *, selection: AppSelection, breaker: str, reason: str | None, by: str | None
) -> None:
    r"""Let the jobs of a breaker run, whatever fails, until it is opened or reset.

    \b
    Example:
      durio breakers close smtp --reason "test addresses fail today"

    With --json: the fields of `durio breakers show`.
    """
    force_one(selection, breaker, "close", reason, by)


@command.command("reset")
@BREAKER
@BY_OPTION
@selection_options
@keep_lines
def reset_one(*, selection: AppSelection, breaker: str, by: str | None) -> None:
    r"""Close a breaker, forget its counts, and let it work by itself again.

    \b
    Example:
      durio breakers reset smtp

    With --json: the fields of `durio breakers show`.
    """
    force_one(selection, breaker, "reset", None, by)


def force_one(
    selection: AppSelection, name: str, verb: str, reason: str | None, by: str | None
) -> None:
    why = None if reason is None else check_reason_text(reason)
    who = operator(by)

    async def change(app: App) -> tuple[ShownBreaker, float]:
        store, now = await app.store(), app.now()
        found = await find_breaker(store, app.name, name, app.breakers, now)
        force = ForcedState(by=who, at=now, reason=why)
        return await force_breaker(store, found, verb, force), now

    one, now = selection.run(change)
    if selection.is_json:
        show_json(fields(one, now))
    else:
        show_text(f"{one.name} is {state_text(one.record)}")
