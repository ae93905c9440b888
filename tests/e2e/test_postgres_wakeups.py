"""Wakeups over a real PostgreSQL: proved, lost and found again, also behind PgBouncer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from durio.host.clock import HostClock
from durio.host.threads import LoopThread
from durio.model.errors import StoreError
from durio.model.settings import RetentionSettings
from durio.ports.store import Wake
from durio.stores.postgres.bell import Bell
from durio.stores.postgres.ears import Ears
from durio.stores.postgres.lines import Lines
from durio.stores.postgres.opening import Opening
from durio.stores.postgres.place import place_of
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
        place = place_of(url)
        self.warned: list[str] = []
        self.changes: list[bool] = []
        opening = Opening(place, self.warned.append)
        self.lines = Lines(opening, CLOCK, None, RetentionSettings())
        self.bell = Bell(self.lines, CLOCK, place.schema, changed=self.changes.append)
        self.ears = Ears(self.lines, CLOCK, self.bell, place.schema)
        self.aside = LoopThread("heartbeat")

    async def settle_aside(self) -> None:
        """A heartbeat: from its own loop, by its own line."""

        async def renew() -> None:
            self.bell.renewed()
            await self.lines.read("select 1")

        await asyncio.wrap_future(self.aside.submit(renew()))

    async def close(self) -> None:
        await self.ears.close()
        await self.bell.close()
        await self.lines.close()
        self.aside.stop()


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
        return await process.bell.wait(WORKER, seconds)
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
            by.bell.ring({LANE: 0}, ())
            wake = await wait(process, 1.0)
            if wake is not None and wake.lanes == {LANE}:
                return


def is_hearing(process: Process) -> Callable[[], bool]:
    return lambda: process.bell._hearing is True and not process.bell.is_deaf


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_rings_cross_processes(postgres: PostgresServer, driver: str) -> None:
    async def story() -> None:
        url = postgres.url(driver=driver)
        async with processes(url, url) as (worker, producer):
            await worker.bell.hang(WORKER, "shop", None)
            await until(worker, is_hearing(worker))
            took: list[float] = []
            for _ in range(30):
                await CLOCK.sleep(0.012)
                began = CLOCK.monotonic()
                producer.bell.ring({LANE: 0}, ())
                assert (await worker.bell.wait(WORKER, 5.0)).lanes == {LANE}
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
            await worker.bell.hang(WORKER, "shop", None)
            await worker.settle_aside()
            await until(worker, is_hearing(worker))
            await cutter.lines.read(CUT)
            await until(
                worker, lambda: worker.bell.is_deaf or not worker.bell.ear.is_up
            )
            await until(worker, is_hearing(worker))
            await rung(worker, by=producer)

    asyncio.run(story())


def test_a_server_that_comes_back_is_heard_again(postgres: PostgresServer) -> None:
    async def story() -> None:
        async with processes(postgres.url(), postgres.url()) as (worker, producer):
            await worker.bell.hang(WORKER, "shop", None)
            await worker.settle_aside()
            await until(worker, is_hearing(worker))
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
                await worker.bell.hang(number, "shop", None)
            await worker.settle_aside()
            home = worker.bell.ear
            await until(worker, lambda: home.is_settled and not home.is_here)
            await until(worker, is_hearing(worker))
            beside.bell.ring({LANE: 0}, ())
            waits = [worker.bell.wait(n, 5.0) for n in range(WORKER, WORKER + 5)]
            assert {wake.lanes for wake in await asyncio.gather(*waits)} == {
                frozenset({LANE})
            }
            ((connections,),) = await beside.lines.read(count)
            ((heard_here,),) = await worker.lines.read(listening)
            assert (connections, heard_here) == (2, 0)

    asyncio.run(story())


def test_behind_pgbouncer_nothing_arrives_and_that_is_noticed(
    postgres: PostgresServer, require: Require
) -> None:
    require(pgbouncer.program(), "pgbouncer (apt-get install pgbouncer)")

    async def story(bouncer: PgBouncer) -> None:
        async with processes(bouncer.url(), bouncer.url()) as (worker, producer):
            await worker.bell.hang(WORKER, "shop", None)
            await worker.settle_aside()
            await until(worker, lambda: worker.changes == [False])
            assert not (await worker.bell.wait(WORKER, 0.5)).rung
            await producer.lines.read(MAKE_READY, LANE)
            began = CLOCK.monotonic()
            assert (await worker.bell.wait(WORKER, 5.0)).lanes == {LANE}
            print(f"found by looking after {CLOCK.monotonic() - began:.2f} s")
            await producer.lines.read(CLEAR)
            # The pooler learns sessions: with the next connection rings arrive.
            bouncer.stop()
            bouncer.settings["pool_mode"] = "session"
            bouncer.start()
            await worker.settle_aside()
            worker.bell._prove_at = 0.0  # sooner than in half a minute
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
            await worker.bell.hang(WORKER, "shop", None)
            await worker.settle_aside()
            await until(worker, lambda: worker.changes == [False])

            async def busy() -> None:
                while True:
                    await worker.lines.read("select 1")

            calls = [worker.aside.submit(busy()) for _ in range(2)]
            for _ in range(5):
                assert not await worker.bell._prove()
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
            ear = await listener.ears.open_ear()
            await teller.ears.look()
            assert teller.ears.is_heard()
            teller.ears.tell(events)
            heard: list[bytes] = []
            async with asyncio.timeout(LONG_SECONDS):
                while len(heard) < len(events):
                    heard += await ear.read(1.0)
            assert heard == events
            await listener.ears.close_ear(ear)
            await teller.ears.look()
            assert not teller.ears.is_heard()

    with PgBouncer(postgres) as bouncer:
        asyncio.run(story(bouncer))
