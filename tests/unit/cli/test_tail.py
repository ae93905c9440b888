"""`durio tail`: what is chosen, how it looks, and when it ends."""

import asyncio
import json
from typing import Any

import pytest

from durio import App
from durio.cli.tail import TailFilter, decoded, event_text, show_live_events
from tests.unit.app.app_harness import MEMORY, working
from tests.unit.cli.terminal import Terminal

PLACE = ("--app", "shop")
EVERYTHING = TailFilter(namespace=None, queue=None, task=None, events=(), level=0)
DONE: dict[str, Any] = {
    "ts": "2026-11-15T06:00:00.000Z",
    "level": "INFO",
    "event": "job.done",
    "namespace": "shop",
    "process": "here/7",
    "job_id": "01",
    "task": "shop.mail",
    "queue": "mail",
}


@pytest.mark.parametrize(
    ("changed", "is_wanted"),
    [
        ({}, True),
        ({"namespace": "shop"}, True),
        ({"namespace": "bakery"}, False),
        ({"queue": "mail"}, True),
        ({"queue": "images"}, False),
        ({"task": "shop.mail"}, True),
        ({"task": "shop.other"}, False),
        ({"events": ("job.*",)}, True),
        ({"events": ("worker.*", "job.dead")}, False),
        ({"level": 20}, True),
        ({"level": 30}, False),
    ],
)
def test_what_is_wanted(changed: dict[str, Any], is_wanted: bool) -> None:  # noqa: FBT001
    fields = {
        name: getattr(EVERYTHING, name)
        for name in ("namespace", "queue", "task", "events", "level")
    }
    chosen = TailFilter(**{**fields, **changed})
    assert chosen.wants(DONE) is is_wanted
    assert chosen.wants({"event": "live.missed", "events": 3})  # always


def test_an_event_as_a_line() -> None:
    line = event_text(DONE)
    assert line == (
        "2026-11-15T06:00:00.000Z INFO    job.done      shop.mail 01 "
        "process=here/7 queue=mail"
    )
    more = {"attempt": 2, "max_attempts": 6, "traceback": "a\nb"}
    dead = event_text({**DONE, "event": "job.dead", **more})
    assert dead.endswith(" attempt 2 of 6\n    a\n    b")
    assert "... 3 events of other processes missed" in event_text(
        {"event": "live.missed", "events": 3}
    )


def test_what_is_no_event_is_passed_over() -> None:
    assert list(decoded([b"{", b"[1]", b'{"event": "x"}'])) == [{"event": "x"}]


def test_it_ends_by_itself(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    assert shop.ok("tail", *PLACE, "--seconds", "0.05") == ""


@pytest.mark.parametrize(
    "args",
    [
        ["--level", "LOUD"],
        ["--limit", "0"],
        ["--seconds", "soon"],
        ["--queue", "a b"],
        ["--event", " "],
        ["--event", "job.dnoe"],
    ],
)
def test_bad_flags(shop: Terminal, args: list[str]) -> None:
    shop.json("enqueue", "resize", '["a"]', *PLACE)
    assert shop.error("tail", *PLACE, *args, code=2)["what"]


def test_no_store_to_listen_to(terminal: Terminal) -> None:
    assert terminal.error("tail", code=3)["code"] == "store_unavailable"


def test_events_of_jobs_and_workers(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the log's level is: a listener that comes late hears what nobody logs."""

    async def main() -> None:
        async with App(MEMORY, name="shop") as app:

            @app.task(name="mail")
            async def mail() -> None: ...

            async with asyncio.TaskGroup() as group:
                async with working(app) as worker:
                    await worker.started.wait()
                    shown = group.create_task(
                        show_live_events(app, EVERYTHING, 4, is_json=True)
                    )
                    while not app.live.has_subscribers():
                        await app.clock.sleep(0.01)
                    await (await mail.enqueue()).result(timeout=30)
                await shown

    asyncio.run(main())
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = {event["event"]: event for event in events}
    assert set(told) == {"job.enqueued", "job.started", "job.done", "worker.stopping"}
    done = told["job.done"]
    assert (done["task"], done["queue"], done["namespace"]) == (
        "shop.mail",
        "default",
        "shop",
    )
    assert (done["level"], done["attempt"]) == ("INFO", 1)
    assert done["process"]


def test_nothing_is_built_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with App(MEMORY, name="shop") as app:
            monkeypatch.setattr(
                app.live, "_publish", lambda _told: pytest.fail("nobody listens")
            )

            @app.task(name="mail")
            async def mail() -> None: ...

            async with working(app):
                await (await mail.enqueue()).result(timeout=30)

    asyncio.run(main())
