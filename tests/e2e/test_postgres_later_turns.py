"""A write that had to wait for a lock, and got it in a later turn: what its caller is told."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from durio.host.clock import HostClock
from durio.model.settings import RetentionSettings
from durio.stores.postgres.asyncpg_driver import AsyncpgConnection
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.driver import LOCK_WAIT, Connector
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.psycopg_driver import PsycopgConnection
from tests.servers.postgres import PostgresServer

LOCK = 2718
WRITE = f"select 7 /* ours */, pg_advisory_xact_lock({LOCK})"
WAIT = "select current_setting('lock_timeout')"
DRIVERS: dict[str, tuple[Any, Callable[[Any], bool]]] = {
    "asyncpg": (AsyncpgConnection, lambda it: it._connection.is_in_transaction()),
    "psycopg": (
        PsycopgConnection,
        lambda it: bool(it._connection.info.transaction_status),
    ),
}
each_driver = pytest.mark.parametrize("driver", DRIVERS)


def connections_of(url: str) -> Connections:
    opening = Connector(location_from_url(url), lambda _text: None)
    return Connections(opening, HostClock(), None, RetentionSettings())


class Holder:
    """Somebody who has the lock until the writer has come for it a second time."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("select pg_advisory_lock(%s)", [LOCK])
        self.asked = 0

    def on_statement(self, sql: str) -> None:
        self.asked += "ours" in sql
        if self.asked == 2:
            self.connection.execute("select pg_advisory_unlock_all()")

    def end(self, pid: int) -> None:
        """End a connection, and be sure of it."""
        self.connection.execute("select pg_terminate_backend(%s, 9999)", [pid])


@each_driver
def test_a_connection_that_ends_after_the_write_takes_nothing_back(
    postgres: PostgresServer, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed: whoever is told otherwise would do it twice."""
    kind, is_in_transaction = DRIVERS[driver]
    holder = Holder(postgres.url())
    rows, run = kind.rows, kind.run

    def end_if_over(connection: Any) -> None:
        if holder.asked == 2 and not is_in_transaction(connection):
            holder.asked += 1
            holder.end(connection.pid)

    async def asked_rows(self: Any, sql: str, args: Any) -> Any:
        holder.on_statement(sql)
        answer = await rows(self, sql, args)
        end_if_over(self)
        return answer

    async def asked_run(self: Any, sql: str) -> Any:
        answer = await run(self, sql)
        end_if_over(self)
        return answer

    monkeypatch.setattr(kind, "rows", asked_rows)
    monkeypatch.setattr(kind, "run", asked_run)

    async def main() -> None:
        lines = connections_of(postgres.url(driver=driver))
        assert (await lines.write_one(WRITE))[0][0] == 7
        assert holder.asked == 3
        assert (await lines.read(WAIT))[0][0] == LOCK_WAIT
        await lines.close()

    with holder.connection:
        asyncio.run(main())
