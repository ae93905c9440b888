"""Draw the picture of the README from a terminal session of our own.

    python -m tests.docs.picture          # runs `durio demo`, writes docs/demo.svg

The lines and colours are those that the command printed. Only the hints at the end, which
name paths of this machine, are left out.
"""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

FILE = Path(__file__).parents[2] / "docs" / "demo.svg"
COMMAND = "durio demo"
COLUMNS_MIN = 80
HINTS_BEGIN = "the code of this shop: "
LABEL = "A terminal session: durio demo kills a worker process, and no job is lost"

BACKGROUND, FOREGROUND = (13, 17, 23), (201, 209, 217)
GREY, RED, GREEN, BLUE = (
    (139, 148, 158),
    (255, 123, 114),
    (86, 211, 100),
    (121, 192, 255),
)
COLOURS = [GREY, RED, GREEN, GREY, BLUE, GREY, GREY, FOREGROUND]
THEME = TerminalTheme(BACKGROUND, FOREGROUND, COLOURS)

# The template of rich names fonts on a server. This one takes what the reader has.
TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{unique_id}-label">
<title id="{unique_id}-label">LABEL</title>
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
<g fill="#30363d"><circle cx="22" cy="20" r="6"/><circle cx="42" cy="20" r="6"/><circle cx="62" cy="20" r="6"/></g>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
""".replace("LABEL", LABEL)


def session() -> str:
    """Run the command as on a terminal with colours; return what it printed."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        COMMAND.split(),
        env={**os.environ, "PATH": programs, "FORCE_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def without_hints(printed: str) -> str:
    """Leave out the block of hints, up to the empty line behind it."""
    before, _, hints = printed.partition(HINTS_BEGIN)
    return before + hints.partition("\n\n")[2]


def draw(command: str, printed: str) -> str:
    """Return an SVG of a terminal with this command and these lines."""
    text = Text.assemble(("$ ", "bright_black"), (command, "bold"), "\n")
    text.append_text(Text.from_ansi(printed.rstrip()))
    width = max(COLUMNS_MIN, *(line.cell_len for line in text.split()))
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
    console.print(text)
    return console.export_svg(theme=THEME, code_format=TEMPLATE, unique_id="durio")


if __name__ == "__main__":
    FILE.write_text(draw(COMMAND, without_hints(session())), encoding="utf-8")
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")
