"""A place of its own for every test, with its processes cleared away afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.ledger import VARIABLE
from tests.e2e.workers import Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path)
    monkeypatch.setenv(VARIABLE, str(place.ledger_folder))
    try:
        yield place
    finally:
        place.clear_away()
