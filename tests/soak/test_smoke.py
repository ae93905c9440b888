"""A very short soak with real processes: faults, recovery, and no job is lost."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.e2e.workers import wait_until
from tests.soak.__main__ import main, tell
from tests.soak.planted import healthy
from tests.soak.record import Record

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
    ("args", "told"),
    [
        ("--minutes 0", "0 is not a number above 0"),
        ("--minutes nan", "nan is not a number above 0"),
        ("--minutes x", "x is not a number above 0"),
        ("--minutes 0.1", "below 0.2 minutes"),
        ("--json /nowhere/x.json", "there is no folder /nowhere"),
        ("--report /nowhere/reports", "there is no folder /nowhere"),
    ],
)
def test_usage_errors_are_told(
    args: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("seconds", [50.0, 120.0, 170.0, 196.0])
def test_figures_of_a_run_that_was_cut_short_are_written(
    seconds: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the base, in a recovery, under faults, and just recovered: never a verdict."""
    record = healthy()
    record.samples = [each for each in record.samples if each.at <= seconds]
    record.faults = [each for each in record.faults if each.begin <= seconds]
    record.totals.acknowledged += 7
    record.totals.unfinished = 7
    record.cut(seconds)
    assert tell(record, tmp_path / "soak.json", tmp_path) == 130
    told = json.loads((tmp_path / "soak.json").read_text())
    assert told["cut_short"]
    assert not [each for each in told["findings"] if each["judgement"] == "broken"]
    assert "**Cut short:**" in (tmp_path / "soak.md").read_text()
    assert "minutes, cut short" in (tmp_path / "soak.svg").read_text()
    assert f"cut short after {seconds:.0f} s; 7 jobs" in capsys.readouterr().err


def test_nothing_is_written_of_a_run_that_never_began(tmp_path: Path) -> None:
    record = Record("command", "commit", "machine", 1, 100.0, 20.0)
    record.cut(0.0)
    assert tell(record, tmp_path / "soak.json", tmp_path) == 130
    assert not list(tmp_path.iterdir())


def test_ctrl_c_stops_a_run_and_keeps_its_figures(tmp_path: Path) -> None:
    figures = tmp_path / "soak.json"
    command = [sys.executable, "-m", "tests.soak", "--minutes", "5", "--rate", "50"]
    soak = subprocess.Popen(
        [*command, "--every", "0.5", "--json", str(figures)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(
            lambda: sum(
                path.stat().st_size for path in tmp_path.glob("soak-*/ledger/*")
            ),
            60,
            "jobs are on record",
        )
        soak.send_signal(signal.SIGINT)
        _, told = soak.communicate(timeout=60)
    finally:
        soak.kill()
    assert soak.returncode == 130, told
    assert "Traceback" not in told
    record = json.loads(figures.read_text())
    totals = record["totals"]
    assert record["cut_short"]
    assert totals["ok"] + totals["unfinished"] == totals["acknowledged"]
    assert not totals["problems"], totals["problems"][:3]
    assert list(tmp_path.iterdir()) == [figures]
