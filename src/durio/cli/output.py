"""Output of commands: JSON, text, or tables on a terminal."""

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from durio.cli.main import storable_text
from durio.model.quantities import format_duration

STATE_COLOURS = {
    "scheduled": "blue",
    "blocked": "magenta",
    "ready": "cyan",
    "running": "yellow",
    "done": "green",
    "dead": "red",
    "cancelled": "bright_black",
}
GAP = "  "


def is_terminal() -> bool:
    """Whether standard output is a terminal and colours are wanted."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def show_json(value: object) -> None:
    click.echo(msgspec.json.encode(value, enc_hook=repr))


def show_text(text: str) -> None:
    """Print plain text; control characters in stored text must not reach the terminal."""
    click.echo(safe(text))


def show_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], none: str
) -> None:
    """Print a table on a terminal, aligned columns elsewhere; `none` if there are no rows."""
    shown = [[safe(cell(value), is_line=True) for value in row] for row in rows]
    if not shown:
        click.echo(none)
    elif is_terminal():
        show_rich_table(columns, shown)
    else:
        for line in plain_lines([list(columns), *shown]):
            click.echo(line)


def show_rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print cells as Text, never as markup: an error of a task may contain brackets."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(value, STATE_COLOURS.get(value, "")) for value in row))
    Console().print(table)


def plain_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return columns as wide as their widest cell, with two spaces between them."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [
        GAP.join(
            value.ljust(width) for value, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%SZ")
    return str(value)


def ago(moment: datetime | None, now: float) -> str:
    """Return text about how long ago a time was, or how far ahead it is."""
    if moment is None:
        return "-"
    seconds = now - moment.timestamp()
    return (
        f"{format_duration(seconds)} ago"
        if seconds >= 0
        else f"in {format_duration(-seconds)}"
    )


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
