"""`durio workers`: who works on a store."""

from typing import Any

import click

from durio.app.app import App
from durio.cli.apps import Place, place_options
from durio.cli.main import keep_lines
from durio.cli.output import ago, show_json, show_table
from durio.model.duration import spoken
from durio.model.job import moment
from durio.ports.browse import WorkerRow

COLUMNS = ("id", "worker", "app", "queues", "running", "lease", "version", "started")


@click.group("workers", short_help="List the workers of a store.")
def command() -> None:
    """See who works on a store."""


@command.command("ls")
@place_options
@keep_lines
def list_workers(*, place: Place) -> None:
    """List the registered workers, the oldest first.

    A worker whose lease is over is dead or hangs; its jobs are given to others. Without
    --app, --name or DURIO_NAME the workers of every App in the store are listed.

    With --json: {"workers": [{"id", "namespace", "name", "host", "pid", "queues",
    "concurrency", "version", "started_at", "running", "lease_seconds_left"}]};
    "queues" is null when it serves all of them.
    """

    async def ask(app: App) -> tuple[list[WorkerRow], float]:
        named = place.app_path is not None or place.namespace() is not None
        rows = await (await app.store()).workers(app.name if named else None)
        return rows, app.now()

    rows, now = place.ask(ask)
    if place.is_json:
        show_json({"workers": [worker_fields(row) for row in rows]})
    else:
        show_table(COLUMNS, [cells(row, now) for row in rows], "no workers")


def worker_fields(row: WorkerRow) -> dict[str, Any]:
    """A worker as data."""
    info = dict(row.info)
    return {
        "id": row.id,
        **info,
        "started_at": moment(info["started_at"]),
        "running": row.running,
        "lease_seconds_left": round(row.lease_seconds_left, 3),
    }


def cells(row: WorkerRow, now: float) -> list[str]:
    """A worker as a line."""
    info = row.info
    left = row.lease_seconds_left
    return [
        str(row.id),
        info["name"],
        info["namespace"],
        "all" if info["queues"] is None else ", ".join(info["queues"]),
        f"{row.running} of {info['concurrency']}",
        spoken(left) if left > 0 else "over",
        info["version"],
        ago(moment(info["started_at"]), now),
    ]
