"""An App with schedules in the folder of a terminal, and what tests of the commands do with it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from durio import App
from durio.client.schedule_store import read_schedule
from durio.model.effects import Effects, Put
from durio.model.schedule import ScheduleRecord, schedule_put
from durio.model.schedule import schedules_kind as kind_of
from tests.unit.cli.terminal import Terminal

PLACE = ("--app", "ticking")
STORE = ("--store", "sqlite:///jobs.db")
TICKING = """
from durio import App, chain

app = App("sqlite:///jobs.db?synchronous=normal", name="shop")

@app.task
async def digest(user: int, text: str = "x") -> int:
    return user

@app.cron("30 2 * * *", tz="Europe/Paris")
@app.task
async def nightly() -> None: ...
"""


def in_shop(story: Callable[[App, Any], Coroutine[Any, Any, Any]]) -> Any:
    """Run a story with the App of the folder, and the names of its module."""
    space: dict[str, Any] = {}
    exec(TICKING, space)  # noqa: S102 - the same code as the file

    async def main() -> Any:
        async with space["app"] as app:
            return await story(app, space)

    return asyncio.run(main())


def rewrite(name: str, late: float | None = None, **changes: Any) -> None:
    """Change the record of a schedule; `late`: it is due since so many seconds."""

    async def story(app: App, _: Any) -> None:
        record, stored = await read_schedule(app, name)
        due_at = record.due_at if late is None else app.now() - late
        if late is not None:
            changes["next_at"] = due_at
        changed: ScheduleRecord = replace(stored, **changes)
        put = schedule_put("shop", name, changed, record.version, due_at)
        await (await app.store()).commit(Effects(puts=[put]))

    in_shop(story)


def damage(name: str) -> None:
    async def story(app: App, _: Any) -> None:
        put = Put(kind_of("shop"), name, b"{")
        await (await app.store()).commit(Effects(puts=[put]))

    in_shop(story)


def add(shop: Terminal, name: str = "digest", *options: str) -> dict[str, Any]:
    rule = options or ("--every", "1h")
    return shop.json("schedules", "add", name, "digest", "[42]", *rule, *PLACE)


def show(shop: Terminal, name: str) -> dict[str, Any]:
    return shop.json("schedules", "show", name, *PLACE)


def text(shop: Terminal, *args: str) -> str:
    return shop.ok("schedules", *args, *PLACE)


def ls(*args: str) -> tuple[str, ...]:
    return ("schedules", "ls", *args, *PLACE)
