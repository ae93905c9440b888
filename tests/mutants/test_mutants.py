"""A sample of the mutants is caught; every one of them can still be planted.

All of them: `make mutants`.
"""

import ast

import pytest

from tests.mutants.catalogue import CONTROL, MUTANTS
from tests.mutants.planting import SOURCE, NoSuchPlace, Patch
from tests.mutants.trial import trial

# Quick ones, of several kinds: some by a seed, some by a promise of the suite.
SAMPLE = (
    "retry_counts_twice",
    "one_retry_too_many",
    "no_jitter",
    "snooze_keeps_lost",
    "key_freed_by_a_predecessor",
    "last_in_first_out",
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SAMPLE)
def test_it_is_caught(name: str) -> None:
    verdict = trial(MUTANTS[name])
    assert verdict.killed, verdict
    print(verdict)


@pytest.mark.timeout(600)
def test_an_engine_without_a_bug_is_not_caught() -> None:
    """Else the trials would show nothing."""
    verdict = trial(CONTROL)
    assert not verdict.killed, verdict


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 28
    assert CONTROL.name not in MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_it_can_be_planted(name: str) -> None:
    """Its words are in today's text, once, and Python still understands the rest."""
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
        ("worker/claim.py", "self._resync"),  # in many places
    ],
)
def test_a_patch_without_its_place_is_an_error(file: str, old: str) -> None:
    with pytest.raises(NoSuchPlace):
        Patch(file, old, "").applied()


def test_the_engine_knows_no_mutant() -> None:
    """Nothing of this can be reached from what is installed: not by name, not at all."""
    files = [path for path in SOURCE.rglob("*") if path.suffix in (".py", ".sql")]
    assert len(files) > 200
    for path in files:
        text = path.read_text(encoding="utf-8")
        for word in ("mutant", "import tests", "from tests", *MUTANTS):
            assert word not in text, f"{path}: {word}"
