"""The package's description: the README, with absolute links once an address is set."""

import importlib.util
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.tidy.house import ROOT, pyproject

ADDRESS = "https://example.org/durio"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLAIN_LINK = re.compile(r"\]\((?!https?:|#|mailto:)")


def load_hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hook", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hook = load_hook()


def description(**config: object) -> str:
    metadata: dict[str, Any] = {}
    hook.Description(str(ROOT), config).update(metadata)
    assert metadata["readme"]["content-type"] == "text/markdown"
    return metadata["readme"]["text"]


@pytest.mark.parametrize("config", [{}, {"address": ""}])
def test_links_stay_without_an_address(config: dict[str, object]) -> None:
    assert description(**config) == README


@pytest.mark.parametrize("address", [ADDRESS, f"{ADDRESS}/"])
def test_links_are_absolute_with_an_address(address: str) -> None:
    text = description(address=address)
    assert PLAIN_LINK.search(README)
    assert not PLAIN_LINK.search(text)
    assert f"]({ADDRESS}/blob/main/docs/index.md)" in text
    assert f"]({ADDRESS}/raw/main/docs/demo.svg)" in text
    assert (
        text.replace(f"{ADDRESS}/blob/main/", "").replace(f"{ADDRESS}/raw/main/", "")
        == README
    )


@pytest.mark.parametrize(
    "text",
    [
        "[a](https://example.com/b)",
        "[a](#below)",
        "[a](mailto:a@example.com)",
        "```python\nx = rows[a](b)\n```",
    ],
)
def test_other_links_and_code_stay(text: str) -> None:
    assert hook.with_address(text, ADDRESS) == text


def test_a_link_behind_code_is_absolute() -> None:
    text = "[a](b.md#c)\n```sh\n[a](b.md)\n```\n[d](e.md)"
    made = hook.with_address(text, ADDRESS)
    assert made == (
        f"[a]({ADDRESS}/blob/main/b.md#c)\n```sh\n[a](b.md)\n```\n"
        f"[d]({ADDRESS}/blob/main/e.md)"
    )


def test_the_address_is_set_in_one_place() -> None:
    config = pyproject()["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    assert set(config) == {"address"}
    assert config["address"] == "" or config["address"].startswith("https://")


def test_source_archive_can_be_built_from(tmp_path: Path) -> None:
    """It holds the hook, and its description is the README."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        info = archive.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert info is not None
        head, _, body = info.read().decode().partition("\n\n")
    assert {"hatch_build.py", "README.md", "docs/demo.svg"} <= names
    assert "Description-Content-Type: text/markdown" in head
    address = pyproject()["tool"]["hatch"]["metadata"]["hooks"]["custom"]["address"]
    assert body == hook.with_address(README, address)
