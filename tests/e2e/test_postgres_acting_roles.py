"""Workers that log in as one role and act as another: who ends what a lost one left behind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from durio.errors import StoreUnavailable
from durio.host.clock import HostClock
from durio.ports.upkeep import ExpiredLeases
from durio.stores.postgres import schema_status
from durio.stores.postgres.checks import checks
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.store import PostgresStore
from tests.conformance.scene import info
from tests.servers.postgres import PostgresServer

ROLES = """
create role boss nologin;
create role clerk login in role boss;
alter role clerk set role = 'boss';
create role other login in role boss;
alter role other set role = 'boss';
create role ender login in role boss;
grant pg_signal_backend to ender;
create role quiet login in role boss;
alter role quiet set track_activities = off;
create role chief login superuser;
create role deputy login in role boss, chief;
create schema jobs authorization boss;
alter default privileges in schema jobs grant all on tables to public;
"""
OPEN = (
    "select count(*) from pg_stat_activity"
    " where pid = %s and application_name like 'durio tx %%'"
)
clock = HostClock()


@pytest.fixture(scope="module")
def hand(postgres: PostgresServer) -> "Iterator[psycopg.Connection]":
    with psycopg.connect(postgres.url(), autocommit=True) as hand:
        hand.execute(ROLES)
        schema_status.migrate(postgres.url(user="clerk", schema="jobs"))
        yield hand


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(location_from_url(url), clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def doctor_evidence(url: str) -> list[str]:
    found = checks(url, clock)
    async for _ in found["store.place"]():
        pass
    told = [finding.evidence async for finding in found["store.blocks"]()]
    async for _ in found["store.clock"]():  # the last: it leaves
        pass
    return told


async def is_open(hand: "psycopg.Connection", pid: int) -> bool:
    asked = await asyncio.to_thread(hand.execute, OPEN, [pid])
    return asked.fetchone() == (1,)


@pytest.mark.parametrize(
    ("worker", "rescuer", "is_ended"),
    [
        ("clerk", "clerk", True),
        ("clerk", "other", False),
        ("clerk", "ender", True),
        ("clerk", "postgres", True),
        ("quiet", "quiet", True),  # of whose transactions the server says nothing
        ("chief", "deputy", False),  # who may act as it, and not end it
    ],
)
def test_a_lost_worker_s_block_is_ended_by_whoever_may(
    postgres: PostgresServer,
    hand: "psycopg.Connection",
    worker: str,
    rescuer: str,
    *,
    is_ended: bool,
) -> None:
    """And its jobs are taken back in any case."""

    async def main() -> None:
        url = postgres.url(user=rescuer, schema="jobs")
        async with (
            opened(postgres.url(user=worker, schema="jobs")) as theirs,
            opened(url) as ours,
        ):
            lost = await theirs.register(info(), 0.01)
            block = await theirs.transaction(lost)
            pid = await block.connection.fetchval("select pg_backend_pid()")
            has_warned = bool(await doctor_evidence(url))
            assert has_warned == (rescuer == "other")
            async with asyncio.timeout(20):
                while not (rescued := await ours.rescue(100, ExpiredLeases())).workers:
                    pass
                assert list(rescued.workers) == [lost]
                while is_ended and await is_open(hand, pid):
                    pass
            assert await is_open(hand, pid) != is_ended
            await block.roll_back()

    asyncio.run(main())


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_what_a_lost_call_had_begun_is_ended(
    postgres: PostgresServer, hand: "psycopg.Connection", driver: str
) -> None:
    async def main() -> None:
        url = postgres.url(
            user="clerk", schema="jobs", driver=driver, call_timeout="0.5"
        )
        async with opened(url) as store:
            with pytest.raises(StoreUnavailable):
                await store.context.connections.write_one("select pg_sleep(77)")
            (role,) = (
                await store.context.connections.read("select current_user::text")
            )[0]
            assert role == "boss", "and who we act as is as before"
            asked = "select count(*) from pg_stat_activity where query like %s"
            sleeping = hand.execute(asked, ["select pg_sleep(77)%"]).fetchone()
            assert sleeping == (0,)

    asyncio.run(main())
