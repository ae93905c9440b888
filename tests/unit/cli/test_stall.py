"""A command that nobody lets write names the process that keeps the store locked."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durio.cli import stall
from tests.unit.cli.terminal import Terminal
from tests.unit.stores.test_upgrade import make_old_file

pytestmark = pytest.mark.slow  # real processes, servers or seconds


@contextmanager
def locked(terminal: Terminal) -> Iterator[None]:
    """As a process does that was stopped inside a transaction."""
    path = terminal.folder / "jobs.db-durio" / "writer.lock"
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(os.getpid()).encode().ljust(20))
        file.flush()
        yield


def test_a_stopped_writer_is_named_and_not_waited_for(
    shop: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(stall, "REPORT_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(stall, "GIVE_UP_SECONDS", 0.2)
    shop.ok("enqueue", "--app", "shop", "refuse")
    with locked(shop):
        result = shop.run("queues", "pause", "mail", "--app", "shop")
        assert result.exit_code == 3
        assert f"waiting: process {os.getpid()} keeps" in result.stderr
        assert "[store_stalled]" in result.stderr
        assert f"process {os.getpid()} keeps the store locked" in result.stderr
        # Who only looks is not in anybody's way.
        assert "mail" in shop.ok("queues", "ls", "--app", "shop")
        error = shop.error("queues", "pause", "mail", "--app", "shop", code=3)
        assert error["code"] == "store_stalled"
        assert f"process {os.getpid()} keeps the store locked" in error["what"]
    shop.ok("queues", "pause", "mail", "--app", "shop")


def test_a_stopped_writer_is_named_also_where_the_schema_is_older(
    shop: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the opening of the store already waits."""
    monkeypatch.setattr(stall, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(stall, "REPORT_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(stall, "GIVE_UP_SECONDS", 0.2)
    make_old_file(shop.folder / "jobs.db")
    Path("jobs.db-durio").mkdir(mode=0o700)
    Path("jobs.db-durio/writer.lock").touch(mode=0o600)
    with locked(shop):
        result = shop.run("migrate", "--app", "shop")
        assert result.exit_code == 3
        assert f"waiting: process {os.getpid()} keeps" in result.stderr
    shop.ok("migrate", "--app", "shop")
