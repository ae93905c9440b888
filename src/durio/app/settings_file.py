"""Read settings from a TOML file: `durio.toml`, or `[tool.durio]` of a pyproject.toml."""

import os
import tomllib
from pathlib import Path
from typing import Any, cast

from durio.model.errors import InvalidOption


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
