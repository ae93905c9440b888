"""`durio audit`: lists operators' actions."""

from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, selection_options
from durio.cli.filters import LIMIT_OPTION
from durio.cli.main import keep_lines
from durio.cli.output import age, show_json, show_table
from durio.cli.table import Column
from durio.model.job import utc_datetime
from durio.ports.browse import AuditLine

COLUMNS = (
    Column("age"),
    Column("who", 1, least=12),
    Column("did", least=8),
    Column("to", least=37),  # an id, or a list of them that is cut after the first
    Column("jobs", 2),
)


@click.group("audit", short_help="Show what operators changed, and when.")
def command() -> None:
    """Show what operators changed: when, who, what, how many jobs."""


@command.command("ls")
@LIMIT_OPTION
@selection_options
@keep_lines
def list_audit(*, selection: AppSelection, limit: int) -> None:
    r"""List the changes that operators made, newest first.

    Recorded are retries, cancels and discards of jobs, changes of queues, and requests
    to workers (drain, report, stack), each in the transaction of the change itself. A
    request that changed nothing, such as pausing a paused queue, is not recorded.
    Without an App, the records of every App in the store are listed.

    \b
    Examples:
      durio audit ls
      durio audit ls --limit 500 --json

    With --json: {"audit": [{"at", "who", "verb", "target", "jobs", "details"}]};
    "details" of a change by the dashboard are {"address", "browser", "request_id",
    "before", "after"}, else null.

    \b
    Exit codes: 2 usage; 3 store; 4 import of the App; 5 schema
    """

    async def ask(app: App) -> tuple[list[AuditLine], float]:
        store = await app.store()
        name = selection.scope(app)
        return await store.audit(name, limit=limit), app.now()

    rows, now = selection.run_unscoped(ask)
    if selection.is_json:
        show_json({"audit": [line_fields(row) for row in rows]})
    else:
        show_table(COLUMNS, [cells(row, now) for row in rows], "no changes recorded")


def line_fields(row: AuditLine) -> dict[str, Any]:
    return {
        "at": utc_datetime(row.at),
        "who": row.who,
        "verb": row.verb,
        "target": row.target,
        "jobs": row.jobs,
        "details": row.read_details(),
    }


def cells(row: AuditLine, now: float) -> list[Any]:
    return [age(utc_datetime(row.at), now), row.who, row.verb, row.target, row.jobs]
