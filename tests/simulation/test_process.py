"""A simulated process is the same on every machine: only the scenario configures it."""

from pathlib import Path
from typing import Any

import pytest

from durio.model.settings import settings_from
from tests.simulation.network import SimulatedLink
from tests.simulation.process import app_on
from tests.simulation.world import World


class SilentObserver:
    """A store that is never called."""

    def __init__(self) -> None:
        self.store: Any = None

    def executed(self, *_: object) -> None:
        raise AssertionError("nothing was asked")


def test_neither_environment_nor_file_has_a_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "durio.toml").write_text("[payload]\nbytes_max = 10\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DURIO_WORKER__CONCURRENCY", "77")
    world = World(1)
    given = {"worker": {"grace_seconds": 6.0}}
    node = world.director
    app = app_on(
        node, SimulatedLink(node, SilentObserver()), name="sim", settings=given
    )
    assert app.settings == settings_from(given)
    world.close()
