"""Read settings from a TOML file: `durio.toml`, or `[tool.durio]` of a pyproject.toml.

A file may have routes too: tables `[[routes]]` with tasks, queue and priority.
"""

import os
import tomllib
from pathlib import Path
from typing import Any, cast

from durio.model.errors import InvalidName, InvalidOption
from durio.model.routes import Route, checked_rules

ROUTE_KEYS = ("tasks", "queue", "priority")


def settings_file(given: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings in a file, as a tree; the caller refuses unknown names."""
    path = Path(given)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidOption(
            f"the settings file {str(path)!r} cannot be read: {error}",
            cure="Give a TOML file with tables such as [worker].",
            place=str(path),
        ) from None
    found: Any = tree
    if path.name == "pyproject.toml":
        found = tree.get("tool", {}).get("durio", {})
    if not isinstance(found, dict):
        raise InvalidOption(
            f"{path}: tool.durio is not a table",
            cure="Write [tool.durio.worker], or [tool.durio] with url = ...",
            place=str(path),
        )
    return cast("dict[str, Any]", found)


def routes_of_file(tables: object, path: str) -> list[tuple[str, Route]]:
    """Return the rules of the routes in a file; errors name the file."""
    if not isinstance(tables, list):
        raise InvalidOption(
            f"{path}: routes cannot be {tables!r:.80}",
            cure='Write [[routes]], and tasks = "payment:*" and queue = "critical" below.',
            place=path,
        )
    try:
        rules: list[tuple[str, Route]] = [
            rule_of_table(table) for table in cast("list[object]", tables)
        ]
        checked_rules("app", rules)  # the name of the App is not known here
    except (InvalidName, InvalidOption) as error:
        raise InvalidOption(
            f"{path}: {error.what}", cure=error.cure, place=path
        ) from None
    return rules


def rule_of_table(table: object) -> tuple[str, Route]:
    fields = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    unknown = [name for name in fields if name not in ROUTE_KEYS]
    if unknown or "tasks" not in fields:
        what = f"has a key {unknown[0]!r}" if unknown else "names no tasks"
        raise InvalidOption(
            f"a route {what}: {table!r:.80}",
            cure=f"Its keys are {', '.join(ROUTE_KEYS)}: give tasks, and one of the others.",
        )
    places = {name: value for name, value in fields.items() if name != "tasks"}
    return fields["tasks"], Route(**places)
