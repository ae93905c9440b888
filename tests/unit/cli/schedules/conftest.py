"""A terminal in a folder with an App that declares a schedule."""

import pytest

from tests.unit.cli.schedules.ticking import TICKING, in_shop
from tests.unit.cli.terminal import Terminal


@pytest.fixture
def shop(terminal: Terminal) -> Terminal:
    """A folder with an App whose schedule `nightly` is stored."""
    terminal.write("ticking.py", TICKING)
    in_shop(lambda app, _: app.schedules.declare_at_start())
    return terminal
