"""Worlds that once broke an invariant are replayed in every run."""

import pytest

from tests.simulation.shrink import FOLDER, read
from tests.simulation.summary import failure, invariants

FILES = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_holds_now(path):
    kept = read(path)
    account = kept.play()
    assert not account.violations, failure(account, f"once seen at {kept.commit}", path)


def test_files_are_named_by_what_they_hold():
    for path in FILES:
        kept = read(path)
        assert path.name == kept.name
        assert kept.invariant in invariants()
        assert kept.showed, f"{path.name}: say what it showed"
