"""A server that takes no writes for a while: what goes on by itself when it does again."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from durio.errors import StoreReadOnly
from durio.host.clock import HostClock
from durio.model.settings import RetentionSettings
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.driver import Connector
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.transaction import PostgresTransaction
from tests.servers.postgres import PostgresServer

WRITE = "create table public.{} ()"
SWITCH = "alter role switched {} default_transaction_read_only"


@pytest.fixture(scope="module")
def hand(postgres: PostgresServer) -> "Iterator[psycopg.Connection]":
    with psycopg.connect(postgres.url(), autocommit=True) as hand:
        hand.execute("create role switched login superuser")
        yield hand


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_whoever_was_refused_comes_in_anew(
    postgres: PostgresServer, hand: "psycopg.Connection", driver: str
) -> None:
    """The next connection may lead to another server, or have another default."""

    async def main() -> None:
        url = postgres.url(user="switched", driver=driver)
        opening = Connector(location_from_url(url), lambda _text: None)
        lines = Connections(opening, HostClock(), None, RetentionSettings())

        async def work(tx: PostgresTransaction) -> None:
            await tx.run(WRITE.format(f"{driver}_two"))

        hand.execute(f"{SWITCH.format('set')} = on")
        for write in (
            lambda: lines.write_one(WRITE.format(f"{driver}_one")),
            lambda: lines.write(work),
        ):
            await lines.read("select 1")
            hand.execute(SWITCH.format("reset"))
            with pytest.raises(StoreReadOnly) as told:
                await write()
            assert not told.value.unknown
            await write()
            await lines.close()
            hand.execute(f"{SWITCH.format('set')} = on")
        hand.execute(SWITCH.format("reset"))

    asyncio.run(main())
