"""The dashboard's page: built from the sources that are here, small, and for itself.

The page is committed as it is built, because users have no Node. A change in `ui/` without
`make ui` fails here; a rebuild must give the same bytes.
"""

import gzip
import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.tidy.house import ROOT, SRC

UI = ROOT / "ui"
STATIC = SRC / "web/static"
CODE_BYTES_MAX = 120_000  # sum of gzip -9 of every script and style
SHELL_BYTES_MAX = 2000
FILE_LINES_MAX = 400
SOURCES = [path for path in (UI / "src").rglob("*") if path.suffix in {".ts", ".tsx"}]
WRITTEN = [path for path in SOURCES if path.name != "api.ts"]  # that one is generated


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"ui_{name}", UI / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_page_was_built_from_these_sources() -> None:
    written = (STATIC / "SOURCES.sha256").read_text(encoding="utf-8").strip()
    assert written == script("build").sources_hash(), "the page is old: make ui"


@pytest.mark.slow
def test_a_rebuild_gives_the_same_bytes(tmp_path: Path) -> None:
    build = script("build")
    if not build.STAMP.is_file() and not os.environ.get("DURIO_REQUIRE_ALL"):
        pytest.skip("the page's tools are not installed: make ui")
    assert build.main(["--out", str(tmp_path / "out")]) == 0
    assert files_in(tmp_path / "out") == files_in(STATIC), "not the same: make ui"


def test_the_types_are_those_of_the_api() -> None:
    generator = script("generate_types")
    assert generator.OUT.read_text(encoding="utf-8") == generator.types(), (
        "the API has changed: .venv/bin/python ui/generate_types.py"
    )


def test_the_logic_of_the_page() -> None:
    """Node runs TypeScript that has no more than types; these files import no other ones."""
    node = script("build").node_folder() / "bin/node"
    files = sorted(str(path) for path in (UI / "tests").glob("*.test.ts"))
    done = subprocess.run(
        [node, "--test", "--test-reporter=tap", *files],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# fail 0" in done.stdout
    assert re.search(r"# pass [1-9]", done.stdout)


def test_the_page_is_small() -> None:
    code = [path for path in STATIC.rglob("*") if path.suffix in {".js", ".css"}]
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in code)
    print(f"scripts and styles: {size:,} bytes of {CODE_BYTES_MAX:,}")
    assert code
    assert size <= CODE_BYTES_MAX
    assert (STATIC / "index.html").stat().st_size <= SHELL_BYTES_MAX


def test_the_page_loads_nothing_from_elsewhere() -> None:
    names = r"https?://(?!www\.w3\.org/)[\w.-]+"  # but for the names of XML's spaces
    found = [
        f"{path.name}: {match}"
        for path in STATIC.rglob("*")
        if path.suffix in {".html", ".js", ".css", ".svg"}
        for match in re.findall(names, path.read_text(encoding="utf-8"))
    ]
    assert not found, found


def test_the_shell_has_no_inline_script_or_style() -> None:
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    assert "<style" not in text
    assert "style=" not in text
    assert re.findall(r"<script(?![^>]*\ssrc=)", text) == []
    assert '<base href="/">' in text  # the server puts its mount here


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_a_source_file_is_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= FILE_LINES_MAX, f"{path.name}: {lines} lines"


def test_every_text_of_the_catalogue_is_used() -> None:
    """A key is named in full, or by its beginning as in `t(`state.${state}`)`."""
    catalogue = json.loads((UI / "src/en.json").read_text(encoding="utf-8"))
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    whole = set(re.findall(r'"([a-z_]+(?:\.[\w-]+)*)"', code))
    made = {
        re.compile(re.sub(r"\\\$\\\{[^`]*?\\\}", r"[\\w-]+", re.escape(text)))
        for text in re.findall(r"`([a-z_]+\.[^`]*\$\{[^`]+)`", code)
    }
    unused = [
        key
        for key in catalogue
        if key not in whole and not any(pattern.fullmatch(key) for pattern in made)
    ]
    assert not unused, f"take out of en.json: {unused}"
