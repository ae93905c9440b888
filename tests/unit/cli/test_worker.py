"""`durio worker`: its flags, what it serves, and its loop."""

import asyncio
import importlib.util

import pytest

from durio import Settings
from durio.cli.worker import changed_settings, check_queues, loop_factory
from tests.unit.cli.terminal import Terminal

PLACE = ("--app", "shop")
NOTHING = dict.fromkeys(
    (
        "concurrency",
        "prefetch",
        "grace",
        "lease",
        "heartbeat",
        "log_format",
        "log_level",
    )
)


def test_flags_change_only_what_they_name() -> None:
    settings = Settings()
    assert changed_settings(settings, NOTHING) == settings
    flags = {"concurrency": 3, "grace": "2m", "lease": "60", "log_level": "debug"}
    changed = changed_settings(settings, NOTHING | flags)
    assert (changed.worker.concurrency, changed.worker.grace_seconds) == (3, 120.0)
    assert (changed.worker.lease_seconds, changed.worker.heartbeat_seconds) == (
        60.0,
        5.0,
    )
    assert (changed.log.level, changed.log.format) == ("DEBUG", "human")
    assert changed.payload == settings.payload


def test_queues_are_plain_names() -> None:
    assert check_queues(()) is None
    assert check_queues(("b", "a", "b")) == ["b", "a"]


def test_loop_is_asyncios_own_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    made = loop_factory()
    if made is not None:
        made().close()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert loop_factory() is None
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert type(runner.get_loop()).__module__.startswith("asyncio")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["-q", "high=4"], "usage"),
        (["-q", "a b"], "invalid_name"),
        (["-c", "0"], "invalid_option"),
        (["-c", "many"], "usage"),
        (["--lease", "2"], "invalid_option"),  # the heartbeat would be too slow
        (["--grace", "-1"], "invalid_option"),
        (["--log-format", "xml"], "usage"),
        (["--store", "mysql://x"], "invalid_url"),
    ],
)
def test_bad_flags_of_a_worker(shop: Terminal, options: list[str], code: str) -> None:
    assert shop.error("worker", "shop", "--burst", *options, code=2)["code"] == code


def test_burst_serves_the_named_queues_only(shop: Terminal) -> None:
    one = shop.json("enqueue", "resize", '["a"]', *PLACE)["id"]
    two = shop.json("enqueue", "resize", '["a"]', *PLACE, "--queue", "high")["id"]
    answer = shop.json(
        "worker", "shop", "--burst", "-q", "high", "-q", "high", "-c", "2"
    )
    assert answer == {"exit_code": 0, "cut_short": False, "signal": None}
    states = {
        job["id"]: job["state"] for job in shop.json("jobs", "ls", *PLACE)["jobs"]
    }
    assert states == {one: "ready", two: "done"}


def test_worker_without_tasks_is_warned(terminal: Terminal) -> None:
    terminal.write("bare.py", "from durio import App\napp = App()\n")
    assert "has no tasks" in terminal.run("worker", "bare", "--burst").stderr
