"""Defaults that somebody gave a role, and that our statements are not made for."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from durio.host.clock import HostClock
from durio.model.settings import RetentionSettings
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.driver import Connector
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.transaction import PostgresTransaction
from tests.conftest import Require
from tests.servers import pgbouncer
from tests.servers.postgres import PostgresServer

DEFAULTS = {
    "default_transaction_isolation": "serializable",
    "array_nulls": "off",
}
ASKED = "select current_setting('transaction_isolation'), $1::text[]"
GIVEN = ["a", None, "b"]


@pytest.fixture(scope="module")
def odd(postgres: PostgresServer) -> Iterator[PostgresServer]:
    with psycopg.connect(postgres.url(), autocommit=True) as hand:
        for name, value in DEFAULTS.items():
            hand.execute(f"alter role postgres set {name} = '{value}'")
        yield postgres
        hand.execute("alter role postgres reset all")


async def check(url: str) -> None:
    opening = Connector(location_from_url(url), lambda _text: None)
    lines = Connections(opening, HostClock(), None, RetentionSettings())

    async def work(tx: PostgresTransaction) -> object:
        return await tx.rows(ASKED, GIVEN)

    for rows in (await lines.write_one(ASKED, GIVEN), await lines.write(work)):
        assert list(rows[0]) == ["read committed", GIVEN]  # type: ignore[index]
    await lines.close()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_ours_hold(odd: PostgresServer, driver: str) -> None:
    asyncio.run(check(odd.url(driver=driver)))


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_ours_hold_behind_a_pooler(
    odd: PostgresServer, driver: str, require: Require
) -> None:
    require(pgbouncer.program(), "PgBouncer (apt install pgbouncer)")
    with pgbouncer.PgBouncer(odd) as bouncer:
        asyncio.run(check(bouncer.url(driver=driver)))
