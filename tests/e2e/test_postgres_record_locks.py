"""A commit locks records before keys, and all commits lock records in one order."""

import asyncio

import psycopg
import pytest

from durio.host.clock import HostClock
from durio.model.effects import Effects, Put
from durio.model.job import NewJob
from durio.model.keys import key_claim, while_active
from durio.stores.postgres import schema_status
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.store import PostgresStore
from tests.conformance.scene import LANE, PAYLOAD, TASK
from tests.conftest import Require
from tests.servers.postgres import OLDEST, PostgresServer, programs

KIND = "test:shop"
WAITS = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
NAMES = ["B", "a", "c"]
HOLD = "select 1 from durio.record where name = %s for update"
FREE = "select name from durio.record for update skip locked"
clock = HostClock()


def job() -> NewJob:
    claim = key_claim(while_active, TASK, "k", PAYLOAD)
    return NewJob(clock.new_id(), LANE, 4, TASK, PAYLOAD, key=claim)


async def locked(url: str, effects: Effects, *, held: str | None) -> set[str]:
    """Return the records that a commit has locked when it waits.

    It waits for a record, or else for the key of its job.
    """
    store = PostgresStore(location_from_url(url), clock)
    await store.open()
    await store.commit(Effects(puts=[Put(KIND, name, b"1") for name in NAMES]))
    holder = await psycopg.AsyncConnection.connect(url)
    looker = await psycopg.AsyncConnection.connect(url, autocommit=True)
    async with holder, looker:
        if held is None:
            await store.commit(Effects([job()]), tx=holder)
        else:
            await holder.execute(HOLD, [held])
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            commit = group.create_task(store.commit(effects))
            while await count(looker, WAITS) == 0:
                await asyncio.wait([commit], timeout=0.01)
            free = await (await looker.execute(FREE)).fetchall()
            await holder.rollback()
        assert commit.result().conflict is None
    await store.close()
    return {*NAMES} - {name for (name,) in free} - {held or ""}


async def count(connection: psycopg.AsyncConnection, query: str) -> int:
    (value,) = await (await connection.execute(query.encode())).fetchone() or (0,)
    return value


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("delete from durio.uniq")
    return postgres.url()


def test_records_are_locked_before_the_keys_of_jobs(url: str) -> None:
    puts = [Put(KIND, "c", b"2"), Put(KIND, "a", b"2")]
    assert asyncio.run(locked(url, Effects([job()], puts), held=None)) == {"a", "c"}


def test_deletions_and_writes_are_in_one_order(url: str) -> None:
    puts = [Put(KIND, "c", b"2"), Put(KIND, "a", None), Put(KIND, "B", b"2")]
    assert asyncio.run(locked(url, Effects(puts=puts), held="c")) == {"B", "a"}
    assert asyncio.run(locked(url, Effects(puts=puts), held="a")) == {"B"}
    assert asyncio.run(locked(url, Effects(puts=puts), held="B")) == set()


@pytest.mark.parametrize("body", [b"2", None], ids=["writes", "deletions"])
def test_puts_of_one_sort_are_in_that_order(url: str, body: bytes | None) -> None:
    puts = [Put(KIND, name, body) for name in ("c", "a", "B")]
    assert asyncio.run(locked(url, Effects(puts=puts), held="a")) == {"B"}


def test_the_order_is_that_of_bytes_in_any_database(require: Require) -> None:
    """By the rules of a language `a` comes before `B`."""
    require(programs(OLDEST), "PostgreSQL 15 (apt-get install postgresql-15)")
    made = "create database shop template template0 locale_provider icu icu_locale 'en'"
    with PostgresServer(OLDEST, durable=False) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(made)
        url = server.url("shop")
        schema_status.migrate(url)
        puts = [Put(KIND, name, b"2") for name in NAMES]
        assert asyncio.run(locked(url, Effects(puts=puts), held="B")) == set()
        assert asyncio.run(locked(url, Effects(puts=puts), held="a")) == {"B"}
