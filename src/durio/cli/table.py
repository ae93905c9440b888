"""Lists as lines of text that fit a width: one pure function, `table_lines`.

Every column has a rank and a least width. When not all columns fit, those with the highest
rank are left out; those of rank 0 become narrower than their least width instead. What is
left of the width is shared. A value that still does not fit is cut,
unless its column is never cut. Below 60 columns each field has a line of its own. Without a
width nothing is cut.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.cells import cell_len

GAP = "  "
CUT = "…"
COLUMNS_MIN = 60
ID_SHAPE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Column(NamedTuple):
    """A column of a list."""

    name: str
    rank: int = 0  # 0 is always shown; the highest rank is left out first
    least: int = 0  # columns of the terminal; 0: never cut


# The name of a column, a value, and its text as it is shown -> that text with colour.
Paint = Callable[[str, str, str], str]


def no_colour(_column: str, _value: str, shown: str) -> str:
    return shown


def table_lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    paint: Paint = no_colour,
) -> list[str]:
    """Return the lines of a list; without a width a line may have any length."""
    if width is not None and width < COLUMNS_MIN:
        return [
            line for row in rows for line in field_lines(columns, row, width, paint)
        ]
    natural = [
        max(cell_len(text) for text in (column.name, *(row[n] for row in rows)))
        for n, column in enumerate(columns)
    ]
    widths = natural if width is None else fitted_widths(columns, natural, width)
    shown = [n for n, size in enumerate(widths) if size]
    head = [padded(columns[n].name, widths[n]) for n in shown]
    body = [
        [paint(columns[n].name, row[n], padded(row[n], widths[n])) for n in shown]
        for row in rows
    ]
    return [GAP.join(cells).rstrip() for cells in (head, *body)]


def fitted_widths(
    columns: Sequence[Column], natural: Sequence[int], width: int
) -> list[int]:
    """Return the width of each column; 0: it is left out."""
    by_rank = sorted(range(len(columns)), key=lambda n: columns[n].rank)
    widths, left = [0] * len(columns), width + len(GAP)
    for n in by_rank:
        least = min(natural[n], columns[n].least or natural[n])
        if columns[n].rank and least + len(GAP) > left:
            break
        widths[n] = least
        left -= least + len(GAP)
    if left < 0:  # too narrow for the columns of rank 0
        for n in by_rank:
            less = min(widths[n] - 1, -left) if columns[n].least and widths[n] else 0
            widths[n] -= less
            left += less
    return grown(widths, natural, by_rank, left)


def grown(
    widths: list[int], natural: Sequence[int], by_rank: Sequence[int], left: int
) -> list[int]:
    """Give each column that is too narrow an equal share of what is left."""
    while left > 0:
        narrow = [n for n in by_rank if 0 < widths[n] < natural[n]][:left]
        if not narrow:
            break
        for n in narrow:
            widths[n] += 1
        left -= len(narrow)
    return widths


def field_lines(
    columns: Sequence[Column], row: Sequence[str], width: int, paint: Paint
) -> list[str]:
    """Return a row with one field per line; the first field begins the row."""
    names = max(cell_len(column.name) for column in columns[1:])
    heads = [
        f"{columns[0].name} ",
        *(f"  {padded(column.name, names)} " for column in columns[1:]),
    ]
    lines: list[str] = []
    for column, head, value in zip(columns, heads, row, strict=True):
        room = max(1, width - cell_len(head)) if column.least else cell_len(value)
        lines.append(f"{head}{paint(column.name, value, cut(value, room))}".rstrip())
    return lines


def padded(text: str, width: int) -> str:
    """Return text of exactly this width: cut, or filled with spaces."""
    shown = cut(text, width)
    return shown + " " * (width - cell_len(shown))


def cut(text: str, width: int) -> str:
    """Cut text to this width and end it in `…`; an id is kept whole or left out."""
    if cell_len(text) <= width:
        return text
    kept = text[:width]
    while kept and cell_len(kept) > width - 1:  # a wide character counts twice
        kept = kept[:-1]
    for job_id in ID_SHAPE.finditer(text):
        if job_id.start() < len(kept) < job_id.end():
            kept = text[: job_id.start()] or job_id[0]
            break
    return text if len(kept) == len(text) else kept + CUT
