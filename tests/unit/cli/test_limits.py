"""`durio limits`: what it lists, what it changes, and what it refuses."""

import asyncio
from typing import Any

import pytest

from tests.unit.cli.terminal import Terminal

pytestmark = pytest.mark.slow  # real processes, servers or seconds

PLACE = ("--app", "limit_shop")
SHOP = """
from durio import App, Concurrency, Rate
from durio.limits import Budget

app = App("sqlite:///jobs.db", name="shop")

@app.task(limits=[Concurrency(2, key="tenant")], fair_by="tenant")
async def send(tenant: str) -> None: ...

@app.task(limits=[Rate("100/m"), Budget("tokens", 1_000_000, estimate=5)], queue="ai")
async def ask() -> None: ...
"""


@pytest.fixture
def shop(terminal: Terminal) -> Terminal:
    terminal.write("limit_shop.py", SHOP)
    space: dict[str, Any] = {}
    exec(SHOP, space)  # noqa: S102 - the same code as the file

    async def main() -> None:
        async with space["app"] as app:
            await app.declare_limits()
            await space["send"].enqueue_many([("acme",)] * 3)
            await space["send"].enqueue("x" * 100)
            await space["ask"].enqueue()

    asyncio.run(main())
    return terminal


@pytest.mark.proves("L18")
def test_the_list(shop: Terminal) -> None:
    found = {row["limit"]: row for row in shop.json("limits", "ls", *PLACE)["limits"]}
    assert list(found) == ["ask", "send", "tokens", "fair:default"]
    assert found["send"] == {
        "limit": "send",
        "kind": "concurrency",
        "cap": 2,
        "rate": None,
        "burst": None,
        "is_manual": False,
        "key": "tenant",
        "tasks": ["shop.send"],
        "gates": 2,
        "held": 3,
        "waiting": 1,
    }
    assert found["fair:default"]["cap"] == 16
    text = shop.ok("limits", "ls", *PLACE)
    assert "100/m" in text
    assert "1000000/d" in text
    assert "16 at once" in text


def test_one_limit(shop: Terminal) -> None:
    found = shop.json("limits", "show", "send", *PLACE)
    first, second = found["gates"]
    assert first == {
        "key": "acme",
        "held": 2,
        "cap": 2,
        "tokens": None,
        "waiting": 1,
        "closed_until": None,
    }
    assert second["key"].startswith("x" * 47 + "~")
    assert len(second["key"]) == 60
    long = shop.json("limits", "show", "send", "--key", "x" * 100, *PLACE)
    assert long["gates"] == [second]
    assert "2/2" in shop.ok("limits", "show", "send", *PLACE)
    assert "(all jobs)" in shop.ok("limits", "show", "ask", *PLACE)


def test_a_limit_is_set_and_reset(shop: Terminal) -> None:
    assert shop.json("limits", "set", "send", "5", *PLACE) == {
        "limit": "send",
        "cap": 5,
        "rate": None,
        "burst": None,
    }
    found = shop.json("limits", "show", "send", *PLACE)
    assert (found["is_manual"], found["cap"], found["code"]["cap"]) == (True, 5, 2)
    assert "in code: 2 at once" in shop.ok("limits", "show", "send", *PLACE)
    assert "5 at once*" in shop.ok("limits", "ls", *PLACE)
    said = shop.ok("limits", "set", "queue:ai", "5", "100/m", "--burst", "9", *PLACE)
    assert said == "limit queue:ai is now 5 at once, 100/m, burst 9\n"
    assert "is now 2000000/d" in shop.ok("limits", "set", "tokens", "2000000/d", *PLACE)
    assert "no limit" in shop.ok("limits", "set", "ask", "--off", *PLACE)
    assert shop.json("limits", "reset", "send", *PLACE)["cap"] == 2
    said = shop.ok("limits", "reset", "queue:ai", *PLACE)
    assert said == "limit queue:ai is as in code again: no limit\n"
    lines = shop.json("audit", "ls", *PLACE)["audit"]
    assert [line["verb"] for line in lines][:2] == ["reset limit"] * 2
    assert lines[-1]["target"] == "send (5 at once)"


def test_what_is_refused(shop: Terminal) -> None:
    assert shop.error("limits", "set", "sned", "5", *PLACE, code=2)["cure"]
    assert "0" in shop.error("limits", "set", "send", "0", *PLACE, code=2)["what"]
    both = shop.error("limits", "set", "send", "5", "--off", *PLACE, code=2)
    assert "both given" in both["what"]
    assert "no value" in shop.error("limits", "set", "send", *PLACE, code=2)["what"]
    kind = shop.error("limits", "set", "send", "5/m", *PLACE, code=2)
    assert kind["what"].startswith("limit send is a concurrency")


def test_help_says_what_the_commands_do(terminal: Terminal) -> None:
    for words in ((), ("ls",), ("show",), ("set",), ("reset",)):
        assert "limit" in terminal.ok("limits", *words, "--help")


def test_no_limits(terminal: Terminal) -> None:
    terminal.write("bare.py", 'from durio import App\napp = App("sqlite:///b.db")\n')
    terminal.ok("migrate", "--store", "sqlite:///b.db")
    assert "no limits" in terminal.ok("limits", "ls", "--app", "bare")
