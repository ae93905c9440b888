"""How `durio move` tells of its way."""

import pytest

from durio.cli.move import (
    MoveProgress,
    count_lines,
    counts_by_state_name,
    move_progress,
    progress_text,
)
from durio.model.job import DEAD, READY


def test_a_step_is_one_line() -> None:
    assert progress_text("draining", 3, 2) == "draining: 2 workers, 3 running jobs"
    told = progress_text("copying", 500, 1000)
    assert told == f"copying    [{'#' * 12}{'-' * 12}]  500 of 1000 jobs"
    assert "[########################]" in progress_text("copying", 0, 0)


def test_elsewhere_each_step_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with move_progress(is_quiet=False) as tell:
        for done in range(3):
            tell("copying", done, 3)
        tell("verifying", 3, 3)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["copying", "verifying"]


def test_data_is_not_disturbed(capsys: pytest.CaptureFixture[str]) -> None:
    tell = MoveProgress(is_quiet=True)
    tell("copying", 0, 3)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_one_line_that_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with move_progress(is_quiet=False) as tell:
        tell.is_live = True
        tell("draining", 10, 10)
        tell("draining", 1, 1)
        tell("copying", 1, 1)
    told = capsys.readouterr().err
    assert told.startswith("\rdraining: 10 workers, 10 running jobs\rdraining: 1 w")
    assert told.count("\n") == 2


def test_counts_have_names() -> None:
    counts = {"shop": {DEAD: 1, READY: 2}, "idle": {}}
    assert counts_by_state_name(counts) == {"idle": {}, "shop": {"ready": 2, "dead": 1}}
    assert count_lines(counts) == ["  shop  2 ready, 1 dead"]
