"""`durio errors`: groups are listed, shown and muted; their dead jobs run again or go."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from durio.errors import JobDead
from durio.model.effects import Effects
from durio.model.error_groups import group_put, new_group
from tests.unit.cli.terminal import Terminal
from tests.unit.model.test_error_groups import occurrence

pytestmark = pytest.mark.slow  # real processes, servers or seconds

PLACE = ("--app", "error_shop")
SHOP = """
from pathlib import Path
from durio import App, Permanent

app = App("sqlite:///jobs.db", name="shop", version="{version}")

@app.task
async def send(number: int) -> int:
    return read(number)

@app.task
async def check() -> None:
    raise Permanent("no")

def read(number: int) -> int:
    if not Path("repaired").exists():
        raise Permanent(f"no order {{number}}")
    return number
"""


@pytest.fixture
def shop(terminal: Terminal) -> Terminal:
    terminal.write("error_shop.py", SHOP.format(version="2.1"))
    return terminal


def work(*calls: str) -> None:
    """Run jobs of the shop, given as code, and wait until each has ended."""

    text = Path("error_shop.py").read_text(encoding="utf-8")

    async def story() -> None:
        space: dict[str, Any] = {}
        exec(compile(text, "/srv/error_shop.py", "exec"), space)  # noqa: S102
        async with space["app"] as app, app.worker():
            jobs = [await eval(call, space) for call in calls]  # noqa: S307
            for job in jobs:
                with suppress(JobDead):
                    await job.result(timeout=30)

    asyncio.run(story())


def listed(shop: Terminal, *options: str) -> list[dict[str, Any]]:
    return shop.json("errors", "ls", *PLACE, *options)["groups"]


def test_errors_are_grouped_across_versions(shop: Terminal) -> None:
    work("send.enqueue(1)", "send.enqueue(2)", "check.enqueue()")
    shop.write("error_shop.py", "# a line more\n" + SHOP.format(version="2.2"))
    work("send.enqueue(3)")
    sent, checked = listed(shop)
    assert (sent["failed"], sent["dead"], sent["message"]) == (3, 3, "no order 3")
    assert sent["versions"] == {"2.1": 2, "2.2": 1}
    assert sent["tasks"] == {"shop.send": 3}
    assert sent["frames"][-1] == "srv/error_shop.py in read"
    assert checked["failed"] == 1
    assert shop.json("errors", "show", sent["fingerprint"][:4], *PLACE) == sent
    shown = shop.ok("errors", "show", sent["fingerprint"], *PLACE)
    assert "2.1 (2), 2.2 (1)" in shown
    assert "srv/error_shop.py in read" in shown
    assert sent["fingerprint"] in shop.ok("errors", "ls", *PLACE)


def test_a_muted_group_is_left_out(shop: Terminal) -> None:
    work("send.enqueue(1)")
    (found,) = listed(shop)
    name = found["fingerprint"]
    muted = shop.json("errors", "mute", name, "--reason", "known", *PLACE)
    assert (muted["mute"]["reason"], listed(shop)) == ("known", [])
    assert [each["fingerprint"] for each in listed(shop, "--all")] == [name]
    assert "1 muted: --all" in shop.ok("errors", "ls", *PLACE)
    assert "known" in shop.ok("errors", "show", name, *PLACE)
    work("send.enqueue(2)")
    assert listed(shop, "--all")[0]["failed"] == 2
    shop.ok("errors", "mute", name, "--off", *PLACE)
    assert [each["fingerprint"] for each in listed(shop)] == [name]
    assert "errors" in shop.ok("audit", "ls", *PLACE)


def test_the_dead_jobs_of_a_group_run_again(shop: Terminal) -> None:
    work("send.enqueue(1)", "send.enqueue(2)", "check.enqueue()")
    name = next(
        g["fingerprint"] for g in listed(shop) if g["tasks"] == {"shop.send": 2}
    )
    counted = shop.json("errors", "retry", name, "--dry-run", *PLACE)
    assert (counted["counted"], counted["done"]) == (2, 0)
    Path("repaired").touch()
    done = shop.json("errors", "retry", name, "--yes", *PLACE)
    assert (done["counted"], done["done"], done["alone"]) == (2, 2, 0)
    states = [job["state"] for job in shop.json("jobs", "ls", *PLACE)["jobs"]]
    assert sorted(states) == ["dead", "ready", "ready"]
    assert shop.json("errors", "retry", name, "--yes", *PLACE)["counted"] == 0


def test_the_dead_jobs_of_a_group_are_discarded(shop: Terminal) -> None:
    work("send.enqueue(1)", "check.enqueue()")
    name = next(
        g["fingerprint"] for g in listed(shop) if g["tasks"] == {"shop.check": 1}
    )
    done = shop.json("errors", "discard", name, "--yes", *PLACE)
    assert (done["counted"], done["done"]) == (1, 1)
    tasks = [job["task"] for job in shop.json("jobs", "ls", *PLACE)["jobs"]]
    assert tasks == ["shop.send"]


@pytest.mark.parametrize(
    ("name", "code", "error"),
    [
        ("abc", 2, "too short"),
        ("abcd", 1, "no group of errors"),
        ("0000", 2, "several"),
        ("others", 2, "no dead jobs of its own"),
    ],
)
def test_wrong_fingerprints(shop: Terminal, name: str, code: int, error: str) -> None:
    work("check.enqueue()")
    groups(name)
    done = shop.error("errors", "retry", name, "--yes", *PLACE, code=code)
    assert error in done["what"]


def groups(name: str) -> None:
    """Store the groups that the text would be the beginning of."""

    text = Path("error_shop.py").read_text(encoding="utf-8")

    async def story() -> None:
        space: dict[str, Any] = {}
        exec(text, space)  # noqa: S102
        async with space["app"] as app:
            store = await app.store()
            names = {"0000": ["0000aa", "0000bb"], "others": ["others"]}.get(name, [])
            puts = [
                group_put("shop", n, new_group([occurrence()], n), 0) for n in names
            ]
            await store.commit(Effects(puts=puts))

    asyncio.run(story())
