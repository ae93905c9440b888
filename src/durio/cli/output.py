"""Output of commands: JSON, text, or tables on a terminal."""

import os
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from durio.cli.main import storable_text
from durio.cli.table import Column, no_colour, table_lines

STATE_COLOURS = {
    "scheduled": "blue",
    "blocked": "magenta",
    "ready": "cyan",
    "running": "yellow",
    "done": "green",
    "dead": "red",
    "cancelled": "bright_black",
}
# Ages below the first number are shown in this many seconds, by this name.
AGE_UNITS = (
    (120, (1, "s")),
    (7200, (60, "min")),
    (172800, (3600, "h")),
    (float("inf"), (86400, "d")),
)


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def has_colour() -> bool:
    """Return whether standard output is a terminal, and colours are not disabled."""
    return (
        is_terminal()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def show_json(value: object) -> None:
    click.echo(msgspec.json.encode(value, enc_hook=repr))


def show_text(text: str) -> None:
    """Print plain text; control characters in stored text must not reach the terminal."""
    click.echo(safe(text))


def show_table(
    columns: Sequence[Column], rows: Sequence[Sequence[Any]], none: str
) -> None:
    """Print a list that fits the terminal; print `none` if it has no rows."""
    shown = [[safe(cell(value), is_line=True) for value in row] for row in rows]
    if not shown:
        click.echo(none)
        return
    width = shutil.get_terminal_size().columns if is_terminal() else None
    paint = state_colour if has_colour() else no_colour
    for line in table_lines(columns, shown, width, paint):
        click.echo(line, color=has_colour())


def state_colour(column: str, value: str, shown: str) -> str:
    return (
        click.style(shown, fg=STATE_COLOURS.get(value)) if column == "state" else shown
    )


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%SZ")
    return str(value)


def age(moment: datetime | None, now: float) -> str:
    """Return an age in whole units: at most 7 characters for ages up to 270 years."""
    if moment is None:
        return "-"
    seconds = max(0.0, now - moment.timestamp())
    unit, name = next(unit for limit, unit in AGE_UNITS if seconds < limit)
    return f"{seconds // unit:.0f} {name}"


def safe(text: str, *, is_line: bool = False) -> str:
    """Return text without control characters, because the text of an error is not trusted."""
    kept = "" if is_line else "\n\t"
    cleaned = "".join(
        char if char in kept or char.isprintable() else escaped(char) for char in text
    )
    return storable_text(cleaned)


def escaped(char: str) -> str:
    """Return a character that does not print, as Python escapes it."""
    return " " if char == "\n" else char.encode("unicode_escape").decode()


def to_json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()
