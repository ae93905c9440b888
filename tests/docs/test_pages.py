"""Pages hold together: links lead somewhere, files that are named exist, how-tos are short."""

import re
from pathlib import Path

import pytest

from tests.tidy.house import ROOT, SRC

DOCS = ROOT / "docs"
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
]
HOW_TO_LINES_MAX = 120
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
# `tests/e2e/test_kill.py`, `stores/sqlite/store_files.py`: a path of ours in backquotes.
FILE = re.compile(
    r"`((?:tests|src|docs)/[\w./-]+\.\w+|[a-z_]+(?:/[a-z_]+)+\.(?:py|sql))`"
)
DECISION_PARTS = ["## Context", "## Decision", "## Consequences", "## Rejected"]

every_page = pytest.mark.parametrize("page", PAGES)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@every_page
def test_links_lead_somewhere(page: str) -> None:
    here = (ROOT / page).parent
    broken = [
        link for link in LINK.findall(text_of(page)) if not (here / link).exists()
    ]
    assert not broken, f"{page}: {broken}"


@every_page
def test_files_that_are_named_exist(page: str) -> None:
    named = set(FILE.findall(text_of(page)))
    gone = sorted(name for name in named if not is_there(name))
    assert not gone, f"{page} names files that do not exist: {gone}"


def is_there(name: str) -> bool:
    return (ROOT / name).exists() or (SRC / name).exists()


@every_page
def test_page_has_one_title(page: str) -> None:
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^# .+", prose, flags=re.MULTILINE)
    assert len(titles) == 1, f"{page}: {titles}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.startswith("docs/how-to/")])
def test_how_to_is_short(page: str) -> None:
    lines = text_of(page).count("\n")
    assert lines <= HOW_TO_LINES_MAX, f"{page}: {lines} lines; answer one wish"


def test_every_page_can_be_reached() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md", DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = LINK.findall(page.read_text(encoding="utf-8"))
        waiting += [(page.parent / link).resolve() for link in links]
    lonely = sorted({ROOT / page for page in PAGES if page.startswith("docs/")} - seen)
    assert not lonely, f"no link leads to {[p.name for p in lonely]}"


@pytest.mark.parametrize("page", [p for p in PAGES if re.search(r"/\d{4}-", p)])
def test_decision_has_its_parts(page: str) -> None:
    text = text_of(page)
    places = [text.find(f"\n{part}\n") for part in DECISION_PARTS]
    assert -1 not in places, f"{page}: say {DECISION_PARTS[places.index(-1)]!r}"
    assert places == sorted(places), f"{page}: in this order: {DECISION_PARTS}"
    assert text.startswith(f"# {Path(page).name[:4]}: "), f"{page}: number its title"
    assert Path(page).name in text_of("docs/decisions/README.md"), "list it"
