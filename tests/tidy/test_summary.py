"""Tests that were not run are named, and fail where all are required."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.house import ROOT

pytestmark = pytest.mark.slow  # real processes, servers or seconds

STORY = """
def test_server(require): require(False, "moon server")
def test_kernel(require): require.kernel(False, "time travel")
def test_present(require): require(True, "air"); require.kernel(True, "gravity")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_bytes((ROOT / "tests/conftest.py").read_bytes())
    (tmp_path / "test_story.py").write_text(STORY, encoding="utf-8")
    return tmp_path


def run_story(folder: Path, *, require_all: bool) -> str:
    env = {**os.environ, "DURIO_REQUIRE_ALL": "1" if require_all else "0"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    ran = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    return ran.stdout


def test_missing_things_are_listed_by_name(folder: Path) -> None:
    told = run_story(folder, require_all=False)
    assert "1 passed, 2 skipped" in told
    assert "moon server: 1 test\n" in told
    assert "time travel: 1 test\n" in told


def test_missing_server_fails_where_all_is_required(folder: Path) -> None:
    told = run_story(folder, require_all=True)
    assert "1 failed, 1 passed, 1 skipped" in told
    assert "there is no moon server" in told
    assert "time travel: 1 test\n" in told
