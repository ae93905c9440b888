"""A short chaos run with real processes; `make chaos` plays all faults, and longer."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.chaos.__main__ import main
from tests.e2e.chaos.cell import Cell, Fault, play
from tests.e2e.chaos.faults import FAULT_BY_NAME, FAULTS
from tests.e2e.chaos.field import dump_of, ledger_of
from tests.e2e.chaos.judge import BROKEN, HELD, Verdict, judge
from tests.e2e.chaos.report import as_page, exit_code, facts, row
from tests.e2e.workers import ROOT, seeded, wait_until

SECONDS = 4.0
# One of each family; the others are played by `make chaos`.
SHORT = ["kill-random", "kill-uncommitted", "kill-torn", "pause-past-lease"]
NO_RERUN = ["none", "rolling-restart"]
NAMED_MIN = 20


def played(name: str, folder: Path) -> Verdict:
    seed = seeded().randrange(10**6)
    cell = play(FAULT_BY_NAME[name], SECONDS, seed, folder)
    assert cell.verdict is not None, cell.not_run
    print(f"seed {seed}: {row(name, cell.verdict)}")
    return cell.verdict


@pytest.mark.proves("M97", "M98", "M112")
@pytest.mark.parametrize("name", SHORT)
def test_nothing_is_lost_and_every_second_start_is_explained(
    name: str, tmp_path: Path
) -> None:
    verdict = played(name, tmp_path)
    assert verdict.code == HELD, (verdict.problems, verdict.too_little)
    assert verdict.faults > 0
    assert verdict.ok == verdict.acknowledged > 0
    assert (verdict.lost, verdict.unexpected, verdict.duplicated) == (0, 0, 0)
    assert verdict.unexplained == 0


@pytest.mark.proves("M98")
@pytest.mark.parametrize("name", NO_RERUN)
def test_nothing_runs_twice_without_a_fault(name: str, tmp_path: Path) -> None:
    """Also over a deploy, which is no fault."""
    verdict = played(name, tmp_path)
    assert verdict.code == HELD, (verdict.problems, verdict.too_little)
    assert (verdict.explained, verdict.unexplained) == (0, 0)
    assert verdict.ok == verdict.acknowledged == verdict.attempted > 0
    if name == "none":
        check_a_lie_is_found(tmp_path)


def check_a_lie_is_found(folder: Path) -> None:
    """Take one line out of a real ledger: the same run is broken."""
    lines, rows = ledger_of(folder), dump_of(folder)
    wanted = FAULT_BY_NAME["none"].wanted
    assert judge(lines, rows, wanted).code == HELD
    effects = [line for line in lines if line["ev"] == "effect"]
    lied = [line for line in lines if line is not effects[0]]
    assert judge(lied, rows, wanted).code == BROKEN
    assert judge(lines, rows[1:], wanted).code == BROKEN


def test_there_are_enough_named_faults() -> None:
    names = [fault.name for fault in FAULTS if fault.name != "none"]
    assert len(set(names)) == len(names) >= NAMED_MIN


def test_a_fault_that_this_machine_lacks_is_listed_and_not_passed() -> None:
    cells = [Cell(FAULT_BY_NAME["disk-full"], 1, not_run="a tmpfs")]
    assert exit_code(cells) != HELD
    assert "- `disk-full` needs a tmpfs" in as_page(cells, facts(1, 1), 1)


def test_list_names_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == HELD
    out = capsys.readouterr().out
    assert all(fault.name in out for fault in FAULTS)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--fault gremlins", "kill-random"),
        ("--seconds nan", "nan is not a number above 0"),
        ("--seconds=-1", "-1 is not a number above 0"),
        ("--json /nowhere/x.json", "there is no folder /nowhere"),
        ("--page tests", "tests is a folder"),
    ],
)
def test_wrong_usage_is_not_a_verdict(
    args: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as caught:
        main(args.split())
    assert caught.value.code == 64
    assert said in capsys.readouterr().err


def test_the_report_of_a_run_is_a_page_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, figures = tmp_path / "chaos.md", tmp_path / "chaos.json"

    def quick(fault: Fault, _seconds: float, seed: int, _folder: Path) -> Cell:
        return Cell(fault, seed, 1.0, Verdict(ok=3))

    monkeypatch.setattr("tests.e2e.chaos.__main__.play", quick)
    args = ["--seed", "5", "--json", str(figures), "--page", str(page)]
    assert main([*args, "--fault", "sigint", "--fault", "none"]) == HELD
    told = json.loads(figures.read_text())
    assert [cell["fault"] for cell in told["cells"]] == ["none", "sigint"]
    assert (told["seed"], told["exit_code"]) == (5, HELD)
    assert "| sigint | 0 |" in page.read_text()


def test_ctrl_c_keeps_the_cells_that_were_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, figures = tmp_path / "chaos.md", tmp_path / "chaos.json"

    def one_and_stop(fault: Fault, _seconds: float, seed: int, folder: Path) -> Cell:
        folder.mkdir()
        if fault.name == "sigint":
            raise KeyboardInterrupt
        return Cell(fault, seed, 1.0, Verdict(ok=3))

    monkeypatch.setattr("tests.e2e.chaos.__main__.play", one_and_stop)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    args = ["--json", str(figures), "--page", str(page)]
    assert main([*args, "--fault", "none", "--fault", "sigint"]) == 130
    told = json.loads(figures.read_text())
    assert [cell["fault"] for cell in told["cells"]] == ["none"]
    assert (told["cut_short"], told["cells_planned"]) == (True, 2)
    assert "**Cut short** after 1 of 2 cells" in page.read_text()
    assert sorted(tmp_path.iterdir()) == [figures, page]  # no folder of a held cell


def test_sigterm_ends_every_process(tmp_path: Path) -> None:
    """As a time-out of a build server does: it must not leave workers behind."""
    command = [sys.executable, "-m", "tests.e2e.chaos", "--seconds", "60"]
    runner = subprocess.Popen(
        [*command, "--fault", "none"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        children = Path(f"/proc/{runner.pid}/task/{runner.pid}/children")
        pids = wait_until(
            lambda: found if len(found := children.read_text().split()) >= 4 else [],
            60,
            "the workers have started",
        )
        runner.send_signal(signal.SIGTERM)
        told, _ = runner.communicate(timeout=60)
    finally:
        runner.kill()
    assert runner.returncode == 130, told
    assert "**Cut short** after 0 of 1 cells" in told
    assert "Traceback" not in told
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.iterdir())
