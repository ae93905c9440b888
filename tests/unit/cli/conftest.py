"""A terminal of its own for every test: a folder, a clean environment, user code."""

import logging  # noqa: TID251 - what the worker's command sets is put back
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durio.cli import dead_actions, prompts
from tests.unit.cli.terminal import SHOP, Terminal


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DURIO_")]:
        monkeypatch.delenv(name)
    path, modules = list(sys.path), set(sys.modules)
    loggers = [logging.getLogger(), logging.getLogger("durio")]
    before = [(list(each.handlers), each.level, each.propagate) for each in loggers]
    try:
        yield Terminal(tmp_path)
    finally:
        sys.path[:] = path
        for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
            each.handlers[:], each.propagate = handlers, propagate
            each.setLevel(level)
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(
                str(tmp_path)
            ):
                del sys.modules[name]


@pytest.fixture
def shop(terminal: Terminal) -> Terminal:
    """A terminal in a folder with the App `shop:app`."""
    terminal.write("shop.py", SHOP)
    return terminal


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person sits at the terminal, and can answer questions."""
    for module in (prompts, dead_actions):
        monkeypatch.setattr(module, "is_interactive", lambda: True)


@pytest.fixture
def ended(shop: Terminal) -> Callable[..., str]:
    """Enqueue a job, let a worker bring it to its end, give its id."""

    def end(*args: str) -> str:
        job = shop.json("enqueue", *args, "--app", "shop")["id"]
        shop.ok("worker", "shop:app", "--burst", "--log-level", "ERROR")
        return job

    return end
