"""`durio migrate`: creates or upgrades a store's schema, or checks it without writing."""

from typing import Any

import click

from durio.app.app import App
from durio.app.connect import absolute_url, connect, store_module
from durio.app.cures import with_flags
from durio.cli.apps import (
    AppSelection,
    app_argument,
    run_in_app,
    selection_options,
    shown_url,
)
from durio.cli.main import error_fields, exit_code_of, keep_lines
from durio.cli.output import show_json, show_text
from durio.model.errors import SchemaMismatch, StoreError, UsageError


@click.command("migrate", short_help="Create, upgrade or check the schema of a store.")
@click.option(
    "--check", is_flag=True, help="Only check; exit code 5 if not up to date."
)
@click.option(
    "--sql", is_flag=True, help="Print the migrations as SQL; change nothing."
)
@selection_options
@app_argument
@keep_lines
def command(*, selection: AppSelection, check: bool, sql: bool) -> int:
    r"""Create the schema of a store, or upgrade it to this release.

    A SQLite file is created and upgraded whenever it is opened; there, use this command
    to do or check that before a deployment. A PostgreSQL schema is created and upgraded
    by this command only, with a role that may create tables; workers of the previous
    release may keep running. A schema that is newer than this release, or whose
    migrations differ from ours, is never changed. The command creates a SQLite store
    that --store, an App, DURIO_URL or the settings file names, but never the default
    one.

    \b
    Examples:
      durio migrate shop.jobs:app
      durio migrate --store sqlite:///jobs.db
      durio migrate --check && durio worker app:app
      durio migrate --sql > schema.sql
      durio migrate --store postgresql://owner@host/shop?schema=jobs

    With --json: {"store", "up_to_date", "applied", "waiting", "newer", "changed"}: names
    of migrations; with --sql: {"sql"}.

    \b
    Exit codes: 0 up to date; 3 store; 5 missing, older (with --check) or newer.
    """
    if check and sql:
        raise UsageError("--check and --sql are both given", cure="Give one.")
    app = selection.app()
    connect(app.url, app.clock, app.settings)  # raises when the URL names no store
    survey, url = (
        store_module(app.url, "schema_status"),
        absolute_url(app.url, app.folder),
    )
    if sql:
        script = survey.script(url)
        if selection.is_json:
            show_json({"sql": script})
        else:
            click.echo(script.rstrip())
        return 0
    if selection.is_default_store():
        selection.require_store(app)  # only a store that was named is created
    try:
        before = survey.status(url)
        if check:
            return show_check(selection, app, before)
        if survey.MADE_AT_OPEN:
            run_in_app(app, App.store)  # opening migrates; raises if it is not ours
        else:
            survey.migrate(url)
        after = survey.status(url)
    except StoreError as error:
        error.cure = with_flags(error.cure, app)
        raise
    show_status(selection, app, after, done=before.waiting)
    return 0


def show_check(selection: AppSelection, app: App, status: Any) -> int:
    """Print the state of the schema; return 5 if it is not up to date."""
    error = mismatch(app, status)
    if error is None:
        show_status(selection, app, status, done=[])
        return 0
    if not selection.is_json:
        raise error
    show_json({**status_fields(app, status), "error": error_fields(error)})
    return exit_code_of(error)


def show_status(
    selection: AppSelection, app: App, status: Any, done: list[str]
) -> None:
    """Print an up-to-date schema, and the migrations that ran."""
    if selection.is_json:
        show_json(status_fields(app, status))
    elif done:
        show_text(f"{shown_url(app)}: applied {', '.join(done)}")
    else:
        show_text(f"{shown_url(app)}: up to date, with {', '.join(status.applied)}")


def mismatch(app: App, status: Any) -> SchemaMismatch | None:
    """Return what is wrong with a schema; None if it is up to date."""
    url = shown_url(app)
    if status.newer:
        return SchemaMismatch(
            f"{url}: its schema is newer than this code: {', '.join(status.newer)}",
            cure="Upgrade durio here.",
        )
    if status.changed:
        return SchemaMismatch(
            f"{url}: its migrations differ from this release: "
            f"{', '.join(status.changed)}",
            cure="Use the release that made it.",
        )
    if status.waiting:
        word = "is older than this code" if status.applied else "is missing"
        return SchemaMismatch(
            f"{url}: its schema {word}; not applied: {', '.join(status.waiting)}",
            cure=with_flags("Run: durio migrate", app),
        )
    return None


def status_fields(app: App, status: Any) -> dict[str, Any]:
    return {
        "store": shown_url(app),
        "up_to_date": not (status.waiting or status.newer or status.changed),
        "applied": status.applied,
        "waiting": status.waiting,
        "newer": status.newer,
        "changed": status.changed,
    }
