"""`durio breakers`: listed, shown, opened, closed and reset by hand."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from durio.errors import JobDead
from tests.unit.cli.terminal import Terminal

pytestmark = pytest.mark.slow  # real processes, servers or seconds

PLACE = ("--app", "broken_shop")
SHOP = """
from durio import App
from durio.limits import Breaker

app = App("sqlite:///jobs.db", name="shop", breakers=[
    Breaker("smtp", failures=1, open_for="1h"), Breaker("sms")])

@app.task(breaker="smtp", retry=0)
async def send(number: int) -> int:
    raise ConnectionRefusedError("no route")

@app.task(breaker="sms")
async def text(number: int) -> int:
    return number
"""


@pytest.fixture
def shop(terminal: Terminal) -> Terminal:
    terminal.write("broken_shop.py", SHOP)
    return terminal


def work(*calls: str) -> None:
    """Run jobs of the shop, given as code, and wait until each has ended."""
    text = Path("broken_shop.py").read_text(encoding="utf-8")

    async def story() -> None:
        space: dict[str, Any] = {}
        exec(compile(text, "broken_shop.py", "exec"), space)  # noqa: S102
        async with space["app"] as app, app.worker():
            jobs = [await eval(call, space) for call in calls]  # noqa: S307
            for job in jobs:
                with suppress(JobDead):
                    await job.result(timeout=30)

    asyncio.run(story())


def shown(shop: Terminal, name: str) -> dict[str, Any]:
    return shop.json("breakers", "show", name, *PLACE)


def test_breakers_are_listed_and_shown(shop: Terminal) -> None:
    work("send.enqueue(1)", "text.enqueue(1)")
    sms, smtp = shop.json("breakers", "ls", *PLACE)["breakers"]
    assert (sms["name"], sms["state"], sms["calls"]) == ("sms", "closed", 1)
    assert (smtp["name"], smtp["state"], smtp["waiting"]) == ("smtp", "open", 0)
    assert smtp["last_error"] == "ConnectionRefusedError: no route"
    (change,) = smtp["changes"]
    assert (change["before"], change["state"]) == ("closed", "open")
    assert shown(shop, "smtp") == smtp
    held = shop.ok("enqueue", "send", "[1]", *PLACE).split()[1]
    assert shown(shop, "smtp")["waiting"] == 1
    table = shop.ok("breakers", "ls", *PLACE)
    assert "1 of 1 call failed within 60 s" in table
    text = shop.ok("breakers", "show", "smtp", *PLACE)
    assert "smtp is open since " in text
    assert "opens when 1 call failed within 60 s" in text
    assert "1 job waiting" in text
    why = shop.json("why", held, *PLACE)
    assert why["reasons"][0]["code"] == "breaker_open"
    # The command that `why` gives works as it is.
    shop.ok(*why["reasons"][0]["command"].split()[1:])
    assert shown(shop, "smtp")["state"] == "closed"


def test_a_breaker_is_forced_by_hand(shop: Terminal) -> None:
    work("text.enqueue(1)")
    opened = shop.json("breakers", "open", "sms", "--reason", "late", *PLACE)
    assert (opened["state"], opened["forced"]["reason"]) == ("open", "late")
    assert opened["until"] is None
    text = shop.ok("breakers", "show", "sms", *PLACE)
    assert "sms is open by hand since " in text
    assert "late" in text
    assert "durio breakers reset sms --app broken_shop" in text
    shop.ok("enqueue", "text", "[1]", *PLACE)
    assert "open by hand" in shop.ok(
        "breakers", "ls", "--all-apps", "--store", "sqlite:///jobs.db"
    )
    assert shop.ok("breakers", "close", "sms", *PLACE) == "sms is closed by hand\n"
    assert shown(shop, "sms")["forced"]["reason"] is None
    assert shop.ok("breakers", "reset", "sms", *PLACE) == "sms is closed\n"
    states = [job["state"] for job in shop.json("jobs", "ls", *PLACE)["jobs"]]
    assert states == ["ready", "done"]
    audit = shop.ok("audit", "ls", *PLACE)
    assert "breaker sms (late)" in audit


def test_a_declared_breaker_needs_no_worker(shop: Terminal) -> None:
    shop.ok("enqueue", "text", "[1]", *PLACE)
    assert shop.json("breakers", "ls", *PLACE)["breakers"] == []
    assert shown(shop, "sms")["state"] == "closed"
    assert shop.json("breakers", "open", "sms", *PLACE)["state"] == "open"
    assert "sms is open by hand" in shop.ok("breakers", "show", "sms", *PLACE)


def test_an_unknown_breaker_is_an_error(shop: Terminal) -> None:
    work("text.enqueue(1)")
    error = shop.error("breakers", "open", "stmp", *PLACE, code=2)
    assert error["code"] == "unknown_breaker"
    assert "Did you mean 'smtp'?" in error["cure"]
    bare = ("--store", "sqlite:///jobs.db", "--name", "shop")
    assert (
        shop.error("breakers", "show", "x", *bare, code=2)["code"] == "unknown_breaker"
    )
    error = shop.error("breakers", "open", "sms", "--reason", " ", *PLACE, code=2)
    assert error["code"] == "invalid_option"
