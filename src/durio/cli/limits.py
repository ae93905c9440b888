"""`durio limits`: list and show limits, and set them by hand."""

from collections.abc import Sequence
from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, selection_options
from durio.cli.main import keep_lines
from durio.cli.output import show_json, show_table, show_text
from durio.cli.prompts import BY_OPTION, operator
from durio.cli.table import Column
from durio.client.limit_store import (
    find_limit,
    parse_choice,
    read_limits,
    reset_limit,
    set_limit,
)
from durio.client.limit_view import (
    LimitRow,
    choice_text,
    fair_rows,
    gate_view,
    limit_row,
)
from durio.model.errors import UsageError
from durio.model.gate_keys import shortened
from durio.model.gate_rule import GateChoice
from durio.model.limit_records import KnownLimit
from durio.model.quantities import counted
from durio.ports.control import AuditNote

GATES_SHOWN = 100
COLUMNS = (
    Column("limit", least=12),
    Column("in force"),
    Column("by", 2, least=8),
    Column("held", 1),
    Column("waiting"),
    Column("gates", 3),
    Column("tasks", 4, least=12),
)
GATE_COLUMNS = (
    Column("key", least=12),
    Column("held"),
    Column("tokens", 1),
    Column("waiting"),
    Column("closed until", 2),
)
NAME_ARGUMENT = click.argument("limit", metavar="NAME")


@click.group("limits", short_help="List, show, set and reset limits.")
@keep_lines
def command() -> None:
    r"""List, show, set and reset limits of tasks, queues and budgets.

    Tasks declare limits in code: limits=[Concurrency(5, key="tenant"), Rate("100/m")].
    What is set here comes before the code, also after a deploy, until it is reset. It
    holds at once for jobs that wait, and within about a second for new ones.

    \b
    Exit codes:
      0  done
      2  usage, or no such limit
      3, 4, 5  store, import of the App, schema
    """


@command.command("ls")
@selection_options
@keep_lines
def list_all(*, selection: AppSelection) -> None:
    r"""List the limits of an App, with the jobs that hold places or wait.

    A limit with a key has a gate for each value of it. "fair:QUEUE" is the number of
    ready jobs of one key in a queue, for tasks with fair_by. A limit that was set by hand
    is marked with *.

    \b
    Examples:
      durio limits ls
      durio limits ls --json | jq '.limits[] | select(.waiting > 0) | .limit'

    With --json: {"limits": [...]}. A limit has {"limit", "kind", "cap", "rate", "burst",
    "is_manual", "key", "tasks", "gates", "held", "waiting"}. "rate" is per second. Counts
    are those of at most 1,000 gates.
    """

    async def ask(app: App) -> list[LimitRow]:
        store = await app.store()
        known = await read_limits(store, app.name)
        rows = [await limit_row(store, limit) for limit in known]
        names = {row.limit for row in rows}
        fair = await fair_rows(store, app.name)
        return rows + [row for row in fair if row.limit not in names]

    rows = selection.run(ask)
    if selection.is_json:
        show_json({"limits": [row.to_dict() for row in rows]})
        return
    none = "no limits: a worker writes those of its tasks when it starts"
    show_table(COLUMNS, [cells(row) for row in rows], none)


def cells(row: LimitRow) -> list[str]:
    return [
        row.limit,
        choice_text(row.choice) + ("*" if row.is_manual else ""),
        row.key,
        str(row.held),
        str(row.waiting),
        str(row.gates),
        ", ".join(row.tasks),
    ]


@command.command("show")
@NAME_ARGUMENT
@click.option("--key", metavar="VALUE", help="Only the gate of this value of the key.")
@selection_options
@keep_lines
def show(*, selection: AppSelection, limit: str, key: str | None) -> None:
    r"""Show one limit: the code's numbers, those in force, and its gates.

    Lists at most 100 gates, those with the most waiting jobs first. A key that is longer
    than 60 bytes is shown shortened, with a hash at its end: --key takes the whole key.

    \b
    Examples:
      durio limits show send_receipt
      durio limits show send_receipt --key acme --json | jq '.gates[0].waiting'

    With --json: the fields of `durio limits ls`, "code" (numbers in code, or null), and
    "gates": a list of {"key", "held", "cap", "tokens", "waiting", "closed_until"}.
    """

    async def ask(app: App) -> dict[str, Any]:
        store = await app.store()
        known = await find_limit(store, app.name, limit)
        prefix = known.gates if key is None else known.gates + shortened(key)
        views = [
            gate_view(row, known.gates)
            for row in await store.gates(prefix, limit=1000)
            if key is None or row.name == prefix
        ]
        views.sort(key=lambda view: (-view["waiting"], -view["held"], view["key"]))
        found = (await limit_row(store, known)).to_dict()
        code = None if known.code is None else known.code.choice._asdict()
        return {**found, "code": code, "gates": views[:GATES_SHOWN]}

    found = selection.run(ask)
    if selection.is_json:
        show_json(found)
        return
    numbers = GateChoice(found["cap"], found["rate"], found["burst"])
    origin = "set by hand" if found["is_manual"] else "as in code"
    show_text(
        f"limit {found['limit']} ({found['kind']}): {choice_text(numbers)}, {origin}"
    )
    if found["is_manual"] and found["code"] is not None:
        show_text(f"  in code: {choice_text(GateChoice(**found['code']))}")
    for name, text in (("key", found["key"]), ("tasks", ", ".join(found["tasks"]))):
        if text:
            show_text(f"  {name}: {text}")
    show_table(GATE_COLUMNS, [gate_cells(view) for view in found["gates"]], "no gates")


def gate_cells(view: dict[str, Any]) -> list[str]:
    cap, tokens = view["cap"], view["tokens"]
    return [
        view["key"] or "(all jobs)",
        f"{view['held']}/{cap}" if cap is not None else "-",
        "-" if tokens is None else f"{tokens:.3g}",
        str(view["waiting"]),
        view["closed_until"] or "",
    ]


@command.command("set")
@NAME_ARGUMENT
@click.argument("values", metavar="VALUE...", nargs=-1)
@click.option("--burst", type=float, metavar="N", help="Jobs at once after a pause.")
@click.option("--off", is_flag=True, help="No limit, until it is reset.")
@BY_OPTION
@selection_options
@keep_lines
def set_one(
    *,
    selection: AppSelection,
    limit: str,
    values: Sequence[str],
    burst: float | None,
    off: bool,
    by: str | None,
) -> None:
    r"""Set a limit by hand: it comes before the code until `durio limits reset`.

    VALUE is a number of jobs that run at the same time, such as 5, or a rate, such as
    100/m. A limit keeps its kind; only queue:NAME, which limits all jobs of a queue, may
    have either or both. For a budget, 2000000/d is the amount and the time. Jobs that
    were stored before a limit of a queue was set first are not limited by it.

    \b
    Examples:
      durio limits set send_receipt 10
      durio limits set queue:mail 5 100/m
      durio limits set tokens 2000000/d
      durio limits set send_receipt --off

    With --json: {"limit", "cap", "rate", "burst"}.
    """
    if bool(values) is off:
        raise UsageError(
            "a value and --off are both given" if off else "no value is given",
            cure=f"durio limits set {limit} 5, or 100/m, or --off.",
        )

    async def change(app: App) -> tuple[KnownLimit, GateChoice]:
        store = await app.store()
        known = await find_limit(store, app.name, limit)
        choice = parse_choice(known, values, burst) if values else GateChoice()
        text = f"{limit} ({choice_text(choice)})"
        note = AuditNote(app.name, operator(by), "set limit", text)
        await set_limit(store, app.name, known, choice, note)
        return known, choice

    known, choice = selection.run(change)
    answer(selection, known, choice, "is now")


@command.command("reset")
@NAME_ARGUMENT
@BY_OPTION
@selection_options
@keep_lines
def reset(*, selection: AppSelection, limit: str, by: str | None) -> None:
    r"""Forget what was set by hand: the numbers of the code are in force again.

    \b
    Examples:
      durio limits reset send_receipt
      durio limits reset queue:mail

    With --json: {"limit", "cap", "rate", "burst"}.
    """

    async def change(app: App) -> tuple[KnownLimit, GateChoice]:
        store = await app.store()
        known = await find_limit(store, app.name, limit)
        note = AuditNote(app.name, operator(by), "reset limit", limit)
        return known, await reset_limit(store, app.name, known, note)

    known, choice = selection.run(change)
    answer(selection, known, choice, "is as in code again:")


def answer(
    selection: AppSelection, known: KnownLimit, choice: GateChoice, verb: str
) -> None:
    if selection.is_json:
        show_json({"limit": known.name, **choice._asdict()})
        return
    tasks = "" if known.code is None else f" ({counted(len(known.code.tasks), 'task')})"
    show_text(f"limit {known.name}{tasks} {verb} {choice_text(choice)}")
