"""Wakeups over a real PostgreSQL: proved, lost and found again, also behind PgBouncer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from durio.host.clock import HostClock
from durio.host.threads import LoopThread
from durio.model.effects import Effects
from durio.model.errors import StoreError
from durio.model.settings import RetentionSettings
from durio.ports.lease import WorkerInfo, command_put
from durio.ports.store import Wake
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.driver import Connector
from durio.stores.postgres.live_events import PostgresLiveEvents
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.store import PostgresStore
from durio.stores.postgres.wakeups import PostgresWakeups
from tests.conftest import Require
from tests.servers import pgbouncer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

CLOCK = HostClock()
LANE = "shop:default"
PROMISE, BACK_SECONDS = 3, 10.0  # so many times what is promised
WORKER = 1
LONG_SECONDS = 30.0
MAKE_READY = "insert into {schema}.ready values ($1::text, 5, gen_random_uuid(), 0)"
CLEAR = "delete from {schema}.ready"
CUT = """
select pg_terminate_backend(pid) from pg_stat_activity
where application_name = 'durio' and pid <> pg_backend_pid()
"""


class Process:
    """What a process has of wakeups: lines, a bell, ears, and a loop for its heartbeat."""

    def __init__(self, url: str) -> None:
        place = location_from_url(url)
        self.warned: list[str] = []
        self.changes: list[bool] = []
        opening = Connector(place, self.warned.append)
        self.connections = Connections(opening, CLOCK, None, RetentionSettings())
        self.wakeups = PostgresWakeups(
            self.connections, CLOCK, place.schema, on_change=self.changes.append
        )
        self.live_events = PostgresLiveEvents(
            self.connections, CLOCK, self.wakeups, place.schema
        )
        self.side_loop = LoopThread("heartbeat")

    async def settle_on_side_loop(self) -> None:
        """A heartbeat: from its own loop, by its own line."""

        async def renew() -> None:
            self.wakeups.on_renewal()
            await self.connections.read("select 1")

        await asyncio.wrap_future(self.side_loop.submit(renew()))

    async def close(self) -> None:
        await self.live_events.close()
        await self.wakeups.close()
        await self.connections.close()
        self.side_loop.stop()


@asynccontextmanager
async def processes(*urls: str) -> AsyncIterator[list[Process]]:
    opened = [Process(url) for url in urls]
    try:
        yield opened
    finally:
        for process in opened:
            await process.close()


async def wait(process: Process, seconds: float = 0.05) -> Wake | None:
    """As a worker waits: what fails is tried again."""
    try:
        return await process.wakeups.wait(WORKER, seconds)
    except StoreError:
        await CLOCK.sleep(0.05)
        return None


async def until(process: Process, condition: Callable[[], bool]) -> None:
    """Wait, as a worker does, until something is so."""
    async with asyncio.timeout(LONG_SECONDS):
        while not condition():
            await wait(process)


async def rung(process: Process, by: Process) -> None:
    """A ring of another process arrives, and not because it is polled."""
    async with asyncio.timeout(LONG_SECONDS):
        while True:
            by.wakeups.wake({LANE: 0}, ())
            wake = await wait(process, 1.0)
            if wake is not None and wake.lanes == {LANE}:
                return


def is_listening(process: Process) -> Callable[[], bool]:
    return lambda: (
        process.wakeups._is_receiving is True and not process.wakeups.has_lost_wakeups
    )


def test_a_worker_without_notify_notices_a_command(postgres: PostgresServer) -> None:
    async def story() -> None:
        url = f"{postgres.url()}{'&' if '?' in postgres.url() else '?'}notify=off"
        store, other = (PostgresStore(location_from_url(url), CLOCK) for _ in "ab")
        await store.open()
        await other.open()
        info = WorkerInfo("shop", "here/1", "here", 1, None, 1, "0")
        worker = await store.register(info, LONG_SECONDS)
        while (await store.wait(worker, 0.05)).woken:
            pass
        put = command_put(worker, "one", "stack")
        await other.commit(Effects(puts=[put]))
        wake = await store.wait(worker, LONG_SECONDS)
        assert (wake.woken, wake.control) == (True, True)
        # The tests of this file share the server, and a worker's number.
        await other.commit(Effects(puts=[put._replace(body=None, ttl_seconds=None)]))
        await store.leave(worker)
        await store.close()
        await other.close()

    asyncio.run(story())


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_rings_cross_processes(postgres: PostgresServer, driver: str) -> None:
    async def story() -> None:
        url = postgres.url(driver=driver)
        async with processes(url, url) as (worker, producer):
            await worker.wakeups.register(WORKER, "shop", None)
            await until(worker, is_listening(worker))
            took: list[float] = []
            for _ in range(30):
                await CLOCK.sleep(0.012)
                began = CLOCK.monotonic()
                producer.wakeups.wake({LANE: 0}, ())
                assert (await worker.wakeups.wait(WORKER, 5.0)).lanes == {LANE}
                took.append(CLOCK.monotonic() - began)
            assert worker.changes == [], "it heard, and did not have to look"
            print(f"{sorted(took)[15] * 1000:.1f} ms from a ring to its wait, median")

    asyncio.run(story())


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_connection_that_is_cut_is_heard_again(
    postgres: PostgresServer, driver: str
) -> None:
    async def story() -> None:
        url = postgres.url(driver=driver)
        async with processes(
            url, url, postgres.url(application_name="cutter")
        ) as found:
            worker, producer, cutter = found
            await worker.wakeups.register(WORKER, "shop", None)
            await worker.settle_on_side_loop()
            await until(worker, is_listening(worker))
            await cutter.connections.read(CUT)
            await until(
                worker,
                lambda: (
                    worker.wakeups.has_lost_wakeups or not worker.wakeups.listener.is_up
                ),
            )
            await until(worker, is_listening(worker))
            await rung(worker, by=producer)

    asyncio.run(story())


def test_a_server_that_comes_back_is_heard_again(postgres: PostgresServer) -> None:
    async def story() -> None:
        async with processes(postgres.url(), postgres.url()) as (worker, producer):
            await worker.wakeups.register(WORKER, "shop", None)
            await worker.settle_on_side_loop()
            await until(worker, is_listening(worker))
            postgres.stop()
            await until(worker, lambda: worker.changes == [False])
            postgres.start()
            began = CLOCK.monotonic()
            await until(worker, lambda: worker.changes == [False, True])
            await rung(worker, by=producer)
            seconds = CLOCK.monotonic() - began
            print(f"heard again {seconds:.1f} s after the server came back")
            assert seconds < PROMISE * BACK_SECONDS

    asyncio.run(story())


def test_a_process_with_a_worker_has_two_connections(postgres: PostgresServer) -> None:
    count = "select count(*) from pg_stat_activity where application_name = 'counted'"
    listening = "select count(*) from pg_listening_channels()"

    async def story() -> None:
        url, other = postgres.url(application_name="counted"), postgres.url()
        async with processes(url, other) as (worker, beside):
            for number in range(WORKER, WORKER + 5):
                await worker.wakeups.register(number, "shop", None)
            await worker.settle_on_side_loop()
            home = worker.wakeups.listener
            await until(worker, lambda: home.is_listening and not home.is_on_this_loop)
            await until(worker, is_listening(worker))
            beside.wakeups.wake({LANE: 0}, ())
            waits = [worker.wakeups.wait(n, 5.0) for n in range(WORKER, WORKER + 5)]
            assert {wake.lanes for wake in await asyncio.gather(*waits)} == {
                frozenset({LANE})
            }
            ((connections,),) = await beside.connections.read(count)
            ((heard_here,),) = await worker.connections.read(listening)
            assert (connections, heard_here) == (2, 0)

    asyncio.run(story())


def test_behind_pgbouncer_nothing_arrives_and_that_is_noticed(
    postgres: PostgresServer, require: Require
) -> None:
    require(pgbouncer.program(), "pgbouncer (apt-get install pgbouncer)")

    async def story(bouncer: PgBouncer) -> None:
        async with processes(bouncer.url(), bouncer.url()) as (worker, producer):
            await worker.wakeups.register(WORKER, "shop", None)
            await worker.settle_on_side_loop()
            await until(worker, lambda: worker.changes == [False])
            assert not (await worker.wakeups.wait(WORKER, 0.5)).woken
            await producer.connections.read(MAKE_READY, LANE)
            began = CLOCK.monotonic()
            assert (await worker.wakeups.wait(WORKER, 5.0)).lanes == {LANE}
            print(f"found by looking after {CLOCK.monotonic() - began:.2f} s")
            await producer.connections.read(CLEAR)
            # The pooler learns sessions: with the next connection rings arrive.
            bouncer.stop()
            bouncer.settings["pool_mode"] = "session"
            bouncer.start()
            await worker.settle_on_side_loop()
            worker.wakeups._check_at = 0.0  # sooner than in half a minute
            await until(worker, lambda: worker.changes == [False, True])
            await rung(worker, by=producer)

    with PgBouncer(postgres) as bouncer:
        asyncio.run(story(bouncer))


def test_a_pooler_never_proves_itself_by_chance(
    postgres: PostgresServer, require: Require
) -> None:
    """One server connection for all: an answer may carry what was said."""
    require(pgbouncer.program(), "pgbouncer (apt-get install pgbouncer)")

    async def story(bouncer: PgBouncer) -> None:
        async with processes(bouncer.url()) as (worker,):
            await worker.wakeups.register(WORKER, "shop", None)
            await worker.settle_on_side_loop()
            await until(worker, lambda: worker.changes == [False])

            async def busy() -> None:
                while True:
                    await worker.connections.read("select 1")

            calls = [worker.side_loop.submit(busy()) for _ in range(2)]
            for _ in range(5):
                assert not await worker.wakeups._check_listen()
            for call in calls:
                call.cancel()

    with PgBouncer(postgres, default_pool_size="1") as bouncer:
        asyncio.run(story(bouncer))


def test_events_reach_a_listener_whose_tellers_are_behind_pgbouncer(
    postgres: PostgresServer, require: Require
) -> None:
    require(pgbouncer.program(), "pgbouncer (apt-get install pgbouncer)")
    events = [
        b'{"event":"job.done","fill":"%d%s"}' % (n, b"x" * 5000) for n in range(40)
    ]

    async def story(bouncer: PgBouncer) -> None:
        async with processes(postgres.url(), bouncer.url()) as (listener, teller):
            ear = await listener.live_events.subscribe()
            await teller.live_events.check_subscribers()
            assert teller.live_events.has_subscribers()
            teller.live_events.publish(events)
            heard: list[bytes] = []
            async with asyncio.timeout(LONG_SECONDS):
                while len(heard) < len(events):
                    heard += await ear.read(1.0)
            assert heard == events
            await listener.live_events.unsubscribe(ear)
            await teller.live_events.check_subscribers()
            assert not teller.live_events.has_subscribers()

    with PgBouncer(postgres) as bouncer:
        asyncio.run(story(bouncer))
