"""A sample of the mutants is caught, and each mutant can still be planted.

`make mutants` runs all of them.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT
from tests.mutants.__main__ import main
from tests.mutants.catalogue import CONTROL, MUTANTS
from tests.mutants.planting import SOURCE, Mutant, Patch, PatchDoesNotFit
from tests.mutants.trial import Verdict, trial

# Quick ones of several kinds: some caught by a seed, some by a promise of the suite.
SAMPLE = (
    "finish_before_run",
    "one_retry_too_many",
    "no_jitter",
    "snooze_keeps_lost",
    "key_freed_by_a_predecessor",
    "last_in_first_out",
    "tick_without_its_condition",
    "schedule_gets_an_old_version",
    "catch_up_without_its_bound",
    "late_ticks_vanish_in_a_change",
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SAMPLE)
def test_it_is_caught(name: str) -> None:
    verdict = trial(MUTANTS[name])
    assert verdict.killed, verdict
    assert verdict.story
    print(verdict)


@pytest.mark.timeout(600)
def test_an_engine_without_a_bug_is_not_caught() -> None:
    """Otherwise the trials would prove nothing."""
    verdict = trial(CONTROL)
    assert not verdict.killed, verdict


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 28
    assert CONTROL.name not in MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_it_can_be_planted(name: str) -> None:
    """Its words occur once in the current source, and the result still compiles."""
    mutant = MUTANTS[name]
    assert mutant.patches
    assert mutant.killers
    assert mutant.wrong.endswith(".")
    for patch in mutant.patches:
        text = patch.applied()
        if patch.file.endswith(".py"):
            ast.parse(text)


@pytest.mark.parametrize(
    ("file", "old"),
    [
        ("worker/gone.py", "x"),
        ("worker/claim.py", "words that nobody ever wrote there"),
        ("worker/claim.py", "self._resync"),  # it occurs more than once
    ],
)
def test_a_patch_without_its_place_is_an_error(file: str, old: str) -> None:
    with pytest.raises(PatchDoesNotFit):
        Patch(file, old, "").applied()


def test_the_engine_knows_no_mutant() -> None:
    """The installed package contains no mutant and no reference to one."""
    files = [path for path in SOURCE.rglob("*") if path.suffix in (".py", ".sql")]
    assert len(files) > 200
    for path in files:
        text = path.read_text(encoding="utf-8")
        for word in ("mutant", "import tests", "from tests", *MUTANTS):
            assert word not in text, f"{path}: {word}"


def test_ctrl_c_keeps_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_and_stop(mutant: Mutant) -> Verdict:
        if mutant.name != SAMPLE[0]:
            raise KeyboardInterrupt
        return Verdict(mutant.name, True, "seed 1", "I4", 1.0, "its story")

    monkeypatch.setattr("tests.mutants.__main__.trial", one_and_stop)
    path = tmp_path / "mutants.json"
    assert main(["--only", *SAMPLE, "--story", "--json", str(path)]) == 130
    told = json.loads(path.read_bytes())
    assert told["cut_short"]
    assert [verdict["name"] for verdict in told["verdicts"]] == [SAMPLE[0]]
    said = capsys.readouterr()
    assert "its story" in said.err
    assert f"cut short: 1 of {len(SAMPLE)} were tried" in said.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--only no_such_bug", "no such mutant: no_such_bug"),
        ("--json /nowhere/x.json", "there is no folder /nowhere"),
    ],
)
def test_wrong_usage_is_told(
    args: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_examples_name_mutants_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    named = [
        line.split("--only ")[1] for line in told.splitlines() if "--only " in line
    ]
    examples = [words for words in named if "NAME" not in words]
    assert len(examples) == 2
    for words in examples:
        assert {word for word in words.split() if word[0] != "-"} <= MUTANTS.keys()
    assert "130  stopped" in told


def test_a_reader_that_has_gone_is_no_verdict() -> None:
    """`--list | head -1` gives no traceback either."""
    ours, theirs = os.pipe()
    os.close(ours)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--list"],
        cwd=ROOT,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(theirs)
    assert (ended.returncode, ended.stderr) == (74, "")
