"""`durio config show`: the effective settings and the origin of each."""

from dataclasses import replace
from typing import Any, NamedTuple

import click

from durio.app.app import App
from durio.app.configuration import DEFAULT, SettingOrigin, setting_names
from durio.app.connect import masked
from durio.cli.apps import DEFAULT_NAME, AppSelection, selection_options
from durio.cli.main import keep_lines
from durio.cli.output import show_json, show_table
from durio.model.errors import UsageError

ENV_FILE = ".env"
FLAGS = {"url": "--store", "name": "--name"}
CODE = SettingOrigin("code", "App(name=)")


class ShownSetting(NamedTuple):
    name: str
    value: Any
    origin: SettingOrigin


@click.group("config", short_help="Show the settings that hold, and who set them.")
def command() -> None:
    """See the settings that hold, and who set them."""


@command.command("show")
@click.argument("path", metavar="[MODULE:APP]", required=False)
@click.option("--origin", is_flag=True, help="Say of each where it comes from.")
@selection_options
@click.pass_obj
@keep_lines
def show(
    from_env_file: set[str] | None,
    *,
    selection: AppSelection,
    path: str | None,
    origin: bool,
) -> None:
    r"""Show every setting with the value that holds in this directory.

    Strongest first: a flag, the App's code, a DURIO_* variable, the file .env, durio.toml
    or [tool.durio] of pyproject.toml, the default. Without MODULE:APP no code is loaded:
    then these are the settings of an App that says nothing itself. Passwords in URLs are
    not shown.

    \b
    Examples:
      durio config show
      durio config show app:app --origin
      durio config show --json | jq '.settings[] | select(.origin != "default")'

    With --json: {"file", "settings": [{"name", "value", "origin", "from"}]}; "origin" is
    flag, code, environment, .env, file or default, "from" the flag, variable or path.

    \b
    Exit codes: 0 ok; 2 usage, or a settings file or variable that is wrong; 4 import
    """
    selection = with_app_path(selection, path)
    app = selection.app()
    rows = [
        with_env_file(row, from_env_file or set())
        for row in effective_settings(app, selection)
    ]
    if selection.is_json:
        fields = [setting_fields(row) for row in rows]
        show_json({"file": app.configuration.file, "settings": fields})
        return
    columns = ("setting", "value", "from") if origin else ("setting", "value")
    cells = [(row.name, row.value, origin_text(row.origin)) for row in rows]
    show_table(columns, [line[: len(columns)] for line in cells], "no settings")


def with_app_path(selection: AppSelection, path: str | None) -> AppSelection:
    """Accept the App as an argument, without --app."""
    if path is None:
        return selection
    if selection.app_path is not None:
        raise UsageError("the App is named twice", cure="Leave out --app.")
    return replace(selection, app_path=path)


def effective_settings(app: App, selection: AppSelection) -> list[ShownSetting]:
    """Return every setting of an App; a value from a flag has the flag as its origin."""
    known = app.configuration
    url, name = known.origin("url"), known.origin("name")
    if selection.store is not None:
        url = SettingOrigin("flag", FLAGS["url"])
    if selection.name is not None:
        name = SettingOrigin("flag", FLAGS["name"])
    elif selection.app_path is not None:
        name = CODE if app.name != DEFAULT_NAME else DEFAULT
    rows = [
        ShownSetting("url", masked(app.url), url),
        ShownSetting("name", app.name, name),
    ]
    for setting in setting_names():
        group, _, field = setting.partition(".")
        value = getattr(getattr(app.settings, group), field)
        rows.append(ShownSetting(setting, value, known.origin(setting)))
    return rows


def with_env_file(row: ShownSetting, from_env_file: set[str]) -> ShownSetting:
    """Return the setting with the file .env as its origin if that file set the variable."""
    kind, place = row.origin
    if kind == "environment" and place in from_env_file:
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
        return f"{ENV_FILE}: {origin.location}"
    return (
        f"code: {origin.location}"
        if origin.kind == "code"
        else origin.location or "default"
    )
