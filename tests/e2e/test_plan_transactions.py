"""A plan in the user's transaction exists if and only if that commits, and starts then."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from durio import App, chain, group
from durio.errors import InvalidPlan, PlanNotFound
from durio.plans import PlanJob, PlanState
from tests.e2e import postgres_shop
from tests.e2e.caller_transactions import POSTGRES, SQLITE, Undo
from tests.e2e.postgres_shop import plain
from tests.e2e.test_transactions import opened, rows_in
from tests.servers.postgres import PostgresServer

SECONDS = 20
COUNT = "select count(*) from "
TABLES = ("job", "waits", "log", "entry", "record")

Opens = Callable[[str], Any]
RowsOf = Callable[[App], Awaitable[dict[str, int]]]


async def in_sqlite(app: App) -> dict[str, int]:
    found = {name: await rows_in(app, COUNT + name) for name in TABLES}
    return {name: rows[0][0] for name, rows in found.items()}


async def story(app: App, opens: Opens, url: str, rows_of: RowsOf) -> None:
    add = app.task(name="one")(one)
    total = app.task(name="total")(total_of)
    plan: Any = group(add.s(1), add.s(2) | add.s()) | total.s()
    before = await rows_of(app)
    handle: PlanJob[int] | None = None
    with suppress(Undo):
        async with opens(url) as tx:
            handle = await plan.options(tx=tx).enqueue()
            assert await rows_of(app) == before  # no other connection sees it
            raise Undo
    assert handle is not None
    assert await rows_of(app) == before
    with pytest.raises(PlanNotFound):
        await handle.status()
    async with opens(url) as tx:
        handle = await plan.options(tx=tx).enqueue()
        with pytest.raises(InvalidPlan, match="in the transaction of tx"):
            await add.map(range(1500)).options(tx=tx).enqueue()
    status = await handle.status()
    assert (status.state, status.nodes) == (PlanState.RUNNING, 4)
    assert (await rows_of(app))["job"] == before["job"] + 4
    async with app.worker():
        assert await handle.result(timeout=SECONDS) == 6
        chained = chain(add.s(1), add.s())
        async with opens(url) as tx:
            handle = await chained.options(tx=tx).enqueue()
        assert await handle.result(timeout=SECONDS) == 3


async def one(value: int) -> int:
    return value + 1


async def total_of(values: list[int]) -> int:
    return sum(values)


@pytest.mark.proves("M6", "M78")
@pytest.mark.parametrize("kind", ["apsw", "sqlite3", "sqlalchemy.AsyncSession"])
def test_a_plan_joins_a_transaction_of_sqlite(tmp_path: Path, kind: str) -> None:
    driver, opens, prefix = SQLITE[kind]
    path = tmp_path / "app.db"

    async def whole() -> None:
        async with opened(path, driver) as app:
            await story(app, opens, f"{prefix}{path}", in_sqlite)

    asyncio.run(whole())


@pytest.mark.proves("M6", "M78")
@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "sqlalchemy.AsyncSession"])
def test_a_plan_joins_a_transaction_of_postgres(
    shop: PostgresServer, kind: str
) -> None:
    opens, scheme = POSTGRES[kind]

    async def in_postgres(_app: App) -> dict[str, int]:
        with psycopg.connect(plain(shop)) as connection:
            counts = {
                name: connection.execute(f"{COUNT}durio.{name}").fetchone()
                for name in (*TABLES, "deferred")
            }
        return {name: row[0] for name, row in counts.items() if row is not None}

    async def whole() -> None:
        async with postgres_shop.opened(shop) as app:
            await story(app, opens, plain(shop, scheme), in_postgres)

    asyncio.run(whole())
