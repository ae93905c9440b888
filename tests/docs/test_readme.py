"""The README as a newcomer meets it: its program, its transaction, its figures, its picture."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

import apsw
import pytest

from tests.docs.picture import FILE as PICTURE
from tests.docs.picture import HINTS_BEGIN, draw, without_hints
from tests.docs.test_code_blocks import ROOT, Story, blocks
from tests.docs.test_code_blocks import story as story  # a fixture

README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURE_BYTES_MAX = 60_000
ORDER = [
    "# Durio",
    "durable background-job queue",
    "](docs/demo.svg)",
    "pip install durio",
    "# app.py",
    "options(tx=db)",
    "## Figures",
    "## Compared with others",
    "on Windows use WSL",
    "](docs/index.md)",
    "make demo",
]


def python_blocks() -> list[str]:
    return [block.text for block in blocks("README.md") if block.language == "python"]


def test_parts_stand_in_their_order() -> None:
    places = [README.find(part) for part in ORDER]
    assert -1 not in places, f"missing: {ORDER[places.index(-1)]}"
    assert places == sorted(places)


def test_program_runs_by_itself(tmp_path: Path) -> None:
    """In an empty folder, and again: the file of the first run is there then."""
    (tmp_path / "app.py").write_text(python_blocks()[0], encoding="utf-8")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DURIO_")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "app.py"],
            cwd=tmp_path,
            env=kept,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "cat.png.400.webp\n"
        assert done.stderr == ""
    assert (tmp_path / "durio.db").exists()


def test_transaction_stores_both_or_neither(story: Story) -> None:
    program, transaction = python_blocks()
    story.write("app.py", program)
    story.import_file("app.py")
    exec(transaction, vars(story.module))  # noqa: S102 - the README's own lines
    names = vars(story.module)
    app, add_picture = names["app"], names["add_picture"]

    async def run() -> list[str]:
        async with app:
            db = apsw.Connection("durio.db")
            db.execute("create table pictures (path text not null)")
            await add_picture(db, "dog.png")
            with pytest.raises(apsw.ConstraintError):
                await add_picture(db, None)
            with suppress(RuntimeError), db:
                await add_picture(db, "fox.png")
                raise RuntimeError("no room")
            rows = db.execute("select path from pictures").fetchall()
            db.close()
            assert rows == [("dog.png",)]
            return [str([*job.args, job.kwargs]) async for job in app.jobs()]

    (stored,) = story.runner.run(run())
    assert "dog.png" in stored


def test_transaction_takes_six_lines() -> None:
    lines = [line for line in python_blocks()[1].splitlines() if line]
    assert len(lines) <= 6


def test_figures_are_those_of_the_reports() -> None:
    table = README.partition("## Figures")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if "](docs/" in line]
    assert len(rows) >= 4
    for figure, command, link in rows:
        assert command.strip()
        (page,) = re.findall(r"\]\((docs/[^)]+)\)", link)
        report = (ROOT / page).read_text(encoding="utf-8").replace(",", "")
        for number in re.findall(r"\d[\d,.]*", figure.replace(",", "")):
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.]*\d)", report), (
                f"{page} does not say {number}"
            )


def test_comparison_is_dated() -> None:
    table = README.partition("## Compared with others")[2].partition("\n## ")[0]
    assert re.search(r"in [A-Z][a-z]+ 20\d\d", table)
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {7}
    assert not [row for row in rows if "not yet" in row.split("|")[2]]


def test_picture_is_small_and_whole() -> None:
    assert PICTURE.stat().st_size <= PICTURE_BYTES_MAX
    tree = ET.parse(PICTURE)  # noqa: S314 - our own file
    text = " ".join("".join(tree.getroot().itertext()).split())
    assert "$ durio demo" in text
    (verdict,) = re.findall(r"\d+ jobs: [\w, ]+ 0 lost, 0 doubled", text)
    (words,) = re.findall(r"!\[([^\]]+)\]\(docs/demo\.svg\)", README)
    assert verdict in words, "the words for the picture quote its last line"


def test_picture_loads_nothing() -> None:
    svg = PICTURE.read_text(encoding="utf-8").replace(
        'xmlns="http://www.w3.org/2000/svg"', "", 1
    )
    for loads in ("http", "//", "@import", "@font-face", "<image", "<script", "href"):
        assert loads not in svg, f"{loads} in {PICTURE.name}"
    assert re.findall(r"url\((?!#)", svg) == []


def test_picture_shows_what_was_printed() -> None:
    hint = f"\n{HINTS_BEGIN}/home/me/shop.py\nmore\n\n"
    printed = f"\x1b[31mkill <9>\x1b[0m\n{hint}3 jobs: 3 done\n"
    svg = draw("durio demo", without_hints(printed))
    text = "".join(ET.fromstring(svg).itertext())  # noqa: S314 - our own text
    text = text.replace("\xa0", " ")
    assert "kill <9>" in text
    assert "3 jobs: 3 done" in text
    assert "/home/me" not in text
