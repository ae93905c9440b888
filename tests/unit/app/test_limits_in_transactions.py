"""Limits of jobs that are stored in a caller's transaction, with and without an event loop."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from durio import App, Concurrency
from durio.client.limit_store import find_limit, set_limit
from durio.model.gate_rule import GateChoice
from durio.ports.control import AuditNote

pytestmark = pytest.mark.slow  # real processes, servers or seconds

NOTE = AuditNote("shop", "ann", "set limit", "x")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[App, Any]]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", name="shop")

    @app.task(name="send", limits=[Concurrency(1, key="tenant")])
    async def send(tenant: str) -> None: ...

    app.run_sync(app.store())
    yield app, send
    app.run_sync(app.close())


@contextmanager
def transaction(app: App) -> Iterator[apsw.Connection]:
    """A caller's own connection, in a transaction that is committed at the end."""
    connection = apsw.Connection(app.url.removeprefix("sqlite:///"))
    connection.execute("begin immediate")
    try:
        yield connection
        connection.execute("commit")
    finally:
        connection.close()


def gates(app: App) -> dict[str, tuple[int | None, int, int]]:
    async def ask() -> dict[str, tuple[int | None, int, int]]:
        store = await app.store()
        await store.settle(100)
        rows = await store.gates("", limit=10)
        return {row.name: (row.cap, row.used, row.waiting) for row in rows}

    return app.run_sync(ask())


def test_without_an_event_loop(shop: tuple[App, Any]) -> None:
    app, send = shop
    with transaction(app) as tx:
        send.options(tx=tx).enqueue_sync("a")
        send.options(tx=tx).enqueue_many_sync([("a",), ("b",)])
    assert gates(app) == {"1k:shop/send/a": (1, 1, 1), "1k:shop/send/b": (1, 1, 0)}


def test_a_rollback_leaves_no_place_taken(shop: tuple[App, Any]) -> None:
    app, send = shop
    with transaction(app) as tx:
        send.options(tx=tx).enqueue_sync("a")
        tx.execute("rollback")
        tx.execute("begin")
    assert not [row for row in gates(app).values() if row[1] or row[2]]


def test_with_an_event_loop(shop: tuple[App, Any]) -> None:
    app, send = shop

    async def main() -> None:
        with transaction(app) as tx:
            await send.options(tx=tx).enqueue("a")
            await (send.si("a") | send.si("b")).options(tx=tx).enqueue()

    asyncio.run(main())
    assert gates(app) == {"1k:shop/send/a": (1, 1, 1)}


def test_what_was_set_by_hand_holds_there_too(shop: tuple[App, Any]) -> None:
    app, send = shop

    async def by_hand() -> None:
        store = await app.store()
        limit = await find_limit(store, app.name, "queue:default")
        await set_limit(store, app.name, limit, GateChoice(5), NOTE)

    app.run_sync(by_hand())
    with transaction(app) as tx:
        send.options(tx=tx).enqueue_sync("a")
    assert gates(app) == {
        "1k:shop/send/a": (1, 1, 0),
        "4w:shop/queue:default/": (5, 1, 0),
    }
