"""Pages for contributors name real files, and ARCHITECTURE lists the real port."""

import inspect
import re

import pytest

from durio.ports.store import Store
from tests.tidy.house import ROOT, SRC

FOLDER = ROOT / "docs/contributing"
PAGES = sorted(path.name for path in FOLDER.glob("*.md"))
LINES_MAX = 80
# `src/durio/model/options.py`, `stores/*/sql`: anything in backquotes with a slash.
PATH = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)+)/?`")
# | be read | `ports/browse.py` | `get` `find` |
PORT_ROW = re.compile(r"^\|[^|]+\| `(ports/\w+\.py)` \|([^|]+)\|$", re.MULTILINE)

every_page = pytest.mark.parametrize("page", PAGES)


def test_there_are_pages() -> None:
    assert {"add-a-feature.md", "add-a-store.md", "add-an-option.md"} <= set(PAGES)


@every_page
def test_every_path_exists(page: str) -> None:
    named = PATH.findall((FOLDER / page).read_text(encoding="utf-8"))
    assert named, f"{page} names no file"
    gone = [name for name in named if not exists(name)]
    assert not gone, f"{page} names files that do not exist: {gone}"


@every_page
def test_page_is_short_and_linked(page: str) -> None:
    lines = (FOLDER / page).read_text(encoding="utf-8").count("\n")
    assert lines < LINES_MAX, f"{page}: {lines} lines"
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"(docs/contributing/{page})" in contributing, f"no link to {page}"


def test_architecture_names_real_paths() -> None:
    named = PATH.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    gone = [name for name in named if not exists(name)]
    assert not gone, f"ARCHITECTURE.md names files that do not exist: {gone}"


def exists(name: str) -> bool:
    return any(True for base in (ROOT, SRC) for _ in base.glob(name))


def test_architecture_lists_the_port() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = {
        file: set(re.findall(r"`(\w+)`", methods))
        for file, methods in PORT_ROW.findall(text)
    }
    assert listed == port(), "write the methods of the port into ARCHITECTURE.md"


def port() -> dict[str, set[str]]:
    """File of `ports/` -> the methods that it asks of a store."""
    return {
        f"ports/{base.__module__.rpartition('.')[2]}.py": {
            name
            for name, value in vars(base).items()
            if inspect.isfunction(value) and not name.startswith("_")
        }
        for base in Store.__mro__
        if base.__module__.startswith("durio.ports.")
    }
