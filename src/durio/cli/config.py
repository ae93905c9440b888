"""`durio config show`: the effective settings and the origin of each."""

from typing import Any, NamedTuple

import click
from msgspec.structs import astuple

from durio.app.app import App
from durio.app.configuration import (
    DEFAULT,
    ENV_FILES,
    ROUTES,
    TOP_LEVEL_NAMES,
    SettingOrigin,
    configuration,
    setting_names,
)
from durio.app.connect import masked
from durio.cli.apps import AppSelection, app_argument, selection_options
from durio.cli.env_file import NO_ENV_FILE, EnvFile
from durio.cli.main import keep_lines
from durio.cli.output import show_json, show_table
from durio.cli.table import Column
from durio.model.options import UNSET
from durio.model.routes import Route

COLUMNS = (Column("setting"), Column("value", least=20), Column("from", 1, least=20))
ENV_FILE = "env file"
FLAGS = {"url": "--store", "name": "--name", "app": "MODULE:APP"}


class ShownSetting(NamedTuple):
    name: str
    value: Any
    origin: SettingOrigin


@click.group("config", short_help="Show effective settings and where each comes from.")
def command() -> None:
    """Show effective settings and where each comes from."""


@command.command("show")
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@selection_options
@app_argument
@click.pass_obj
@keep_lines
def show(env_file: EnvFile | None, *, selection: AppSelection, origin: bool) -> None:
    r"""Show every setting and its value in the current directory.

    Sources in order of precedence: a flag, the App's code, a DURIO_* variable, the file
    of --env-file, durio.toml or [tool.durio] of pyproject.toml, the default. Without an
    App no code is loaded, and settings made in code are not shown. Passwords in URLs
    are hidden.

    \b
    Examples:
      durio config show
      durio config show app:app --origin
      durio config show --json | jq '.settings[] | select(.origin != "default")'

    With --json: {"file", "settings": [{"name", "value", "origin", "from"}]}; "origin" is
    flag, code, environment, env file, file or default, "from" the flag, variable or path.

    \b
    Exit codes: 0 ok; 2 usage, or an invalid settings file or variable; 4 import
    """
    app = selection.app()
    rows = [
        with_env_file(row, env_file or NO_ENV_FILE)
        for row in effective_settings(app, selection)
    ]
    if selection.is_json:
        fields = [setting_fields(row) for row in rows]
        show_json({"file": app.configuration.file, "settings": fields})
        return
    columns = COLUMNS if origin else COLUMNS[:2]
    cells = [(row.name, row.value, origin_text(row.origin)) for row in rows]
    show_table(columns, [line[: len(columns)] for line in cells], "no settings")


def effective_settings(app: App, selection: AppSelection) -> list[ShownSetting]:
    """Return every setting of an App; a value from a flag has the flag as its origin."""
    known = app.configuration if app.origin else configuration(None, None)
    place = selection.place()
    origins = {key: known.origin(key) for key in TOP_LEVEL_NAMES}
    typed = (selection.store, selection.name, selection.app_path)
    for key, value in zip(TOP_LEVEL_NAMES, typed, strict=True):
        if value is not None:
            origins[key] = SettingOrigin("flag", FLAGS[key])
        elif key == "app" and place is None:
            origins[key] = DEFAULT  # --store alone leaves it out
    values = (masked(app.url), app.name, None if place is None else place.path)
    rows = [
        ShownSetting(key, value, origins[key])
        for key, value in zip(TOP_LEVEL_NAMES, values, strict=True)
    ]
    for setting in setting_names():
        group, _, field = setting.partition(".")
        value = getattr(getattr(app.settings, group), field)
        rows.append(ShownSetting(setting, value, known.origin(setting)))
    rows += [
        ShownSetting(f"routes.{rule[0]}", place_text(rule[1]), known.origin(ROUTES))
        for rule in known.routes
    ]
    return rows


def place_text(route: Route) -> str:
    """Return text such as `critical 9`."""
    return " ".join(f"{value}" for value in astuple(route) if value is not UNSET)


def with_env_file(row: ShownSetting, env_file: EnvFile) -> ShownSetting:
    """Return the setting with --env-file as its origin if that file set the variable."""
    kind, place = row.origin
    if kind == "environment" and place in env_file.names:
        return row._replace(origin=SettingOrigin(ENV_FILE, place))
    return row


def setting_fields(row: ShownSetting) -> dict[str, Any]:
    return {
        "name": row.name,
        "value": row.value,
        "origin": row.origin.kind,
        "from": row.origin.location or None,
    }


def origin_text(origin: SettingOrigin) -> str:
    if origin.kind == ENV_FILE:
        return f"{ENV_FILES[origin.location]}: {origin.location}"
    return (
        f"code: {origin.location}"
        if origin.kind == "code"
        else origin.location or "default"
    )
