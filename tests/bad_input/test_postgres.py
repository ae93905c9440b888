"""A real PostgreSQL that cannot be used: each time a clear error, and nothing lost."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from durio.errors import SchemaMismatch, StoreError, StoreReadOnly, StoreUnavailable
from durio.host.clock import HostClock
from durio.model.job import NewJob
from durio.stores.postgres import schema_status
from durio.stores.postgres.driver import Connector
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.store import PostgresStore
from tests.servers import process
from tests.servers.postgres import PASSWORD, PostgresServer

DRIVERS = ("asyncpg", "psycopg")
each_driver = pytest.mark.parametrize("driver", DRIVERS)


def sql(postgres: PostgresServer, *texts: str) -> None:
    """By the owner, each on its own."""

    async def run() -> None:
        place = location_from_url(postgres.url())
        connection = await Connector(place, lambda _text: None).connect()
        for text in texts:
            await connection.run(text)
        await connection.close()

    asyncio.run(run())


def store_of(url: str) -> PostgresStore:
    return PostgresStore(location_from_url(url), HostClock())


def refused(url: str, use: Callable[[PostgresStore], Any] | None = None) -> StoreError:
    """What opening, or using, this store is answered."""

    async def run() -> None:
        store = store_of(url)
        try:
            await store.open()
            if use is not None:
                await use(store)
        finally:
            await store.close()

    with pytest.raises(StoreError) as told:
        asyncio.run(run())
    error = told.value
    assert not error.unknown
    assert error.cure
    assert PASSWORD not in str(error)
    return error


def enqueue(store: PostgresStore) -> Any:
    job = NewJob(
        id=HostClock().new_id(), lane="shop:default", rank=4, task="t", payload=b"[]"
    )
    return store.enqueue([job])


@each_driver
def test_a_wrong_password(postgres: PostgresServer, driver: str) -> None:
    wrong = "not it"
    error = refused(postgres.url(password=wrong, driver=driver))
    assert isinstance(error, StoreUnavailable)
    assert "password was refused" in str(error)
    assert wrong not in str(error)


@each_driver
def test_the_right_password(postgres: PostgresServer, driver: str) -> None:
    async def run() -> None:
        store = store_of(postgres.url(password=PASSWORD, driver=driver))
        await store.open()
        await store.close()

    asyncio.run(run())


@each_driver
def test_a_user_or_a_database_that_is_not_there(
    postgres: PostgresServer, driver: str
) -> None:
    error = refused(postgres.url("shop", driver=driver))
    assert "no such database" in str(error)
    assert "createdb" in error.cure
    error = refused(postgres.url(user="ann", driver=driver))
    assert "refuses this user" in str(error)


@each_driver
def test_nobody_is_there(driver: str) -> None:
    url = f"postgresql://ann@127.0.0.1:{process.free_port()}/shop?driver={driver}"
    error = refused(url)
    assert isinstance(error, StoreUnavailable)
    assert "cannot be reached" in str(error)


@each_driver
def test_a_schema_that_is_not_there(postgres: PostgresServer, driver: str) -> None:
    error = refused(postgres.url(schema="nowhere", driver=driver))
    assert isinstance(error, SchemaMismatch)
    assert "schema nowhere is missing" in str(error)
    assert "durio migrate" in error.cure


def test_a_schema_of_newer_code(postgres: PostgresServer) -> None:
    url = postgres.url(schema="newer")
    schema_status.migrate(url)
    sql(postgres, "insert into newer.migration values (9999, '9999_later', 'x', 0)")
    error = refused(url)
    assert isinstance(error, SchemaMismatch)
    assert "newer than this code: 9999_later" in str(error)
    with pytest.raises(SchemaMismatch, match="newer"):
        schema_status.migrate(url)


def test_a_schema_that_was_made_by_another_text(postgres: PostgresServer) -> None:
    url = postgres.url(schema="changed")
    schema_status.migrate(url)
    sql(postgres, "update changed.migration set checksum = 'x' where number = 1")
    assert "migrations differ" in str(refused(url))


@each_driver
def test_rights_that_are_missing(postgres: PostgresServer, driver: str) -> None:
    sql(
        postgres,
        f"drop role if exists poor_{driver}",
        f"create role poor_{driver} login",
    )
    url = postgres.url(user=f"poor_{driver}", driver=driver)
    error = refused(url)
    assert "lacks a privilege" in str(error)
    assert "grant usage on schema durio" in error.cure
    sql(
        postgres,
        f"grant usage on schema durio to poor_{driver}",
        f"grant select on all tables in schema durio to poor_{driver}",
    )
    error = refused(url, enqueue)
    assert "lacks a privilege" in str(error)
    with pytest.raises(StoreUnavailable, match="lacks a privilege"):
        schema_status.migrate(postgres.url(user=f"poor_{driver}", schema="fresh"))
    sql(postgres, f"drop owned by poor_{driver}", f"drop role poor_{driver}")


@each_driver
def test_a_server_that_takes_no_writes(postgres: PostgresServer, driver: str) -> None:
    sql(postgres, f"create role reader_{driver} login superuser")
    sql(postgres, f"alter role reader_{driver} set default_transaction_read_only = on")
    error = refused(postgres.url(user=f"reader_{driver}", driver=driver), enqueue)
    assert isinstance(error, StoreReadOnly)
    assert "target_session_attrs=read-write" in error.cure


@each_driver
def test_a_statement_that_takes_too_long(postgres: PostgresServer, driver: str) -> None:
    sql(postgres, f"create role hasty_{driver} login superuser")
    sql(postgres, f"alter role hasty_{driver} set statement_timeout = '100ms'")
    url = postgres.url(user=f"hasty_{driver}", driver=driver)
    error = refused(
        url, lambda store: store.context.connections.read("select pg_sleep(9)")
    )
    assert "cancelled a statement" in str(error)
    assert "statement_timeout" in error.cure


@each_driver
def test_no_connection_is_free(postgres: PostgresServer, driver: str) -> None:
    sql(postgres, f"create role many_{driver} login connection limit 0")
    error = refused(postgres.url(user=f"many_{driver}", driver=driver))
    assert "no free connections" in str(error)
    assert "max_connections" in error.cure


@each_driver
def test_an_answer_that_does_not_come(postgres: PostgresServer, driver: str) -> None:
    """The connection is discarded: the next call has its own answer."""

    async def run() -> None:
        store = store_of(postgres.url(driver=driver, call_timeout="0.3"))
        await store.open()
        try:
            with pytest.raises(StoreUnavailable, match="no answer within") as told:
                await store.context.connections.write_one("select pg_sleep(9)")
            assert told.value.unknown
            assert list((await store.context.connections.read("select 7"))[0]) == [7]
        finally:
            await store.close()

    asyncio.run(run())


def test_an_old_server_is_refused(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durio.stores.postgres.driver.VERSION_MIN", 990000)
    error = refused(postgres.url())
    assert "too old" in str(error)
    assert "PostgreSQL 99 or later" in error.cure


@each_driver
def test_somebody_takes_the_call_and_says_nothing(driver: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql://ann@127.0.0.1:{port}/shop?sslmode=disable"
        error = refused(f"{url}&driver={driver}&connect_timeout=0.3")
    assert "cannot be reached (no answer within 0.3 s)" in str(error)
