"""`durio worker`: its flags, what it serves, and its loop."""

import asyncio
import importlib.util

import pytest

from durio import Settings
from durio.cli.worker import changed_settings, read_queue_flags
from durio.host.processes import loop_factory
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
    assert (changed.log.level, changed.log.format) == ("DEBUG", "text")
    assert changed.payload == settings.payload


def test_flags_about_queues_are_told_apart() -> None:
    given = {
        "queues": ("high=4", "low"),
        "weights": ("high=6",),
        "prefetches": ("20", "mail=4"),
        "concurrency": None,
        "strict": False,
    }
    flags = read_queue_flags(given)
    assert flags == (("high=4", "low"), ("high=6",), ("mail=4",), None)
    assert given == {"concurrency": None, "prefetch": 20, "strict": None}
    assert changed_settings(Settings(), NOTHING | given).worker.prefetch == 20
    strict = changed_settings(Settings(), NOTHING | {"strict": True})
    assert strict.worker.strict


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
        (["-q", "high=0"], "invalid_option"),
        (["-q", "high=-1"], "invalid_option"),
        (["-q", "high=many"], "invalid_option"),
        (["-q", "high="], "invalid_option"),
        (["-q", "=4"], "invalid_name"),
        (["-q", ""], "invalid_name"),
        (["-q", "high", "-q", "high=2"], "invalid_option"),
        (["-q", "default=4", "-c", "3"], "invalid_option"),
        (["-q", "default=11", "-q", "d*"], "invalid_option"),
        (["-q", "no-such-queue"], "invalid_option"),
        (["-q", "mail["], "invalid_name"),
        (["-q", "ma il*"], "invalid_name"),
        (["--weight", "default"], "invalid_option"),
        (["--weight", "default=0"], "invalid_option"),
        (["--weight", "default=-3"], "invalid_option"),
        (["--weight", "default=1001"], "invalid_option"),
        (["--weight", "default=0.5"], "invalid_option"),
        (["--weight", "default=2", "--weight", "default=3"], "invalid_option"),
        (["--weight", "defualt=2"], "invalid_option"),
        (["-q", "default", "--weight", "high=2"], "invalid_option"),
        (["--weight", "default=2", "--strict"], "invalid_option"),
        (["--strict"], "invalid_option"),
        (["--prefetch", "mail"], "usage"),
        (["--prefetch", "-1"], "invalid_option"),
        (["--prefetch", "default=-1"], "invalid_option"),
        (["--prefetch", "defualt=1"], "invalid_option"),
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


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--processes", "0"], "usage"),
        (["--processes", "-1"], "usage"),
        (["--processes", "257"], "usage"),
        (["--processes", "many"], "usage"),
        (["--recycle-jobs", "10"], "usage"),
        (["--recycle-rss", "1G"], "usage"),
        (["--recycle-jobs", "0"], "usage"),
        (["--recycle-rss", "much"], "invalid_option"),
        (["--supervised", "999"], "usage"),
    ],
)
def test_bad_flags_of_a_supervisor(
    shop: Terminal, options: list[str], code: str
) -> None:
    assert shop.error("worker", "shop", "--burst", *options, code=2)["code"] == code


def test_settings_that_need_a_supervisor_are_ignored_with_a_warning(
    shop: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURIO_WORKER__RECYCLE_JOBS", "10")
    assert "recycle.ignored" in shop.run("worker", "shop", "--burst").stderr


def test_burst_serves_the_named_queues_only(shop: Terminal) -> None:
    one = shop.json("enqueue", "resize", '["a"]', *PLACE)["id"]
    two = shop.json("enqueue", "resize", '["a"]', *PLACE, "--queue", "high")["id"]
    answer = shop.json(
        "worker", "shop", "--burst", "-q", "high=1", "-c", "2", "--prefetch", "high=1"
    )
    assert answer == {"exit_code": 0, "cut_short": False, "signal": None}
    states = {
        job["id"]: job["state"] for job in shop.json("jobs", "ls", *PLACE)["jobs"]
    }
    assert states == {one: "ready", two: "done"}


def test_unknown_queue_is_told_with_a_suggestion(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE, "--queue", "thumbnails")
    error = shop.error("worker", "shop", "--burst", "-q", "thumbnail", code=2)
    assert "no queue 'thumbnail'" in error["what"]
    assert "Did you mean 'thumbnails'?" in error["cure"]
    assert 'app.queue("thumbnail", weight=1)' in error["cure"]


def test_globs_and_order_on_the_command_line(shop: Terminal) -> None:
    for queue in ("mail-a", "mail-b", "other"):
        shop.json("enqueue", "resize", '["a"]', *PLACE, "--queue", queue)
    options = ("-q", "default=2", "-q", "mail*=1", "--strict")
    assert shop.json("worker", "shop", "--burst", *options)["exit_code"] == 0
    states = {
        job["queue"]: job["state"] for job in shop.json("jobs", "ls", *PLACE)["jobs"]
    }
    assert states == {"mail-a": "done", "mail-b": "done", "other": "ready"}


def test_worker_without_tasks_is_warned(terminal: Terminal) -> None:
    terminal.write("bare.py", "from durio import App\napp = App()\n")
    assert "has no tasks" in terminal.run("worker", "bare", "--burst").stderr


def test_deps_that_fail_are_the_users_own(terminal: Terminal) -> None:
    terminal.write(
        "lacking.py",
        "from contextlib import asynccontextmanager\n"
        "from durio import App\n"
        "@asynccontextmanager\n"
        "async def deps():\n"
        "    raise RuntimeError('no database')\n"
        "    yield\n"
        "app = App(deps=deps)\n",
    )
    error = terminal.error("worker", "lacking", "--burst", code=1)
    assert (error["code"], error["what"]) == (
        "deps_failed",
        "deps= raised RuntimeError: no database",
    )
    assert "lacking.py" in error["traceback"]
    assert "durio/worker" not in error["traceback"]
