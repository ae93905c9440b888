"""A place of its own for every test, with its processes cleared away afterwards."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.child_place import ChildPlace
from tests.e2e.ledger import VARIABLE
from tests.e2e.workers import Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path)
    # Under nohup this one is ignored, in every process that we start too.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    monkeypatch.setenv(VARIABLE, str(place.ledger_folder))
    try:
        yield place
    finally:
        place.clear_away()
        signal.signal(signal.SIGHUP, before)


@pytest.fixture
def child_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ChildPlace]:
    place = ChildPlace(tmp_path)
    monkeypatch.setenv(VARIABLE, str(place.ledger_folder))
    try:
        yield place
    finally:
        place.clear_away()
