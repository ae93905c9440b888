"""A very short soak with real processes: it runs, strikes, heals, and nothing is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT

SECONDS = 110


@pytest.mark.proves("M98")
def test_twenty_seconds_of_soak(tmp_path: Path) -> None:
    record = tmp_path / "soak.json"
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "tests.soak", "--minutes", "0.33", "--rate", "100"),
            *("--every", "1", "--json", str(record), "--report", str(tmp_path)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    print(answer.stderr)
    assert record.exists(), answer.stderr
    told = json.loads(record.read_text())
    totals = told["totals"]
    assert not totals["problems"], totals["problems"][:3]
    assert totals["acknowledged"] == totals["ok"] > 0
    assert totals["lost"] == totals["duplicated"] == totals["unexpected"] == 0
    assert totals["unexplained"] == 0
    assert told["faults"]
    assert told["samples"]
    assert "](soak.svg)" in (tmp_path / "soak.md").read_text()
    assert (tmp_path / "soak.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("minutes", "told"),
    [("0", "not a number above 0"), ("0.1", "below 0.2 minutes"), ("x", "invalid")],
)
def test_usage_errors_are_told(minutes: str, told: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", minutes],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert answer.returncode == 2
    assert told in answer.stderr
