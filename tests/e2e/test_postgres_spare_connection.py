"""Waiting for locked keys over a spare connection, and where there is none."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from durio import App
from durio.stores.postgres import connections
from tests.conftest import Require
from tests.e2e.open_transaction import clock, connected, open_transaction
from tests.e2e.postgres_shop import adding, opened, plain, waiting_queues
from tests.servers import pgbouncer
from tests.servers.postgres import PostgresServer

TURN_SECONDS = 0.1
KEYS = 20
# One round over all waiting keys, three times.
SOON_SECONDS = 3 * (KEYS + 1) * TURN_SECONDS
SLOW_SECONDS = 30  # the end of a test that hangs
LEASE_SECONDS = 3.0
SESSIONS = "select count(*) from pg_stat_activity where application_name = 'durio'"

CUT_WAITING = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where application_name = 'durio' and wait_event_type = 'Lock'
"""


async def until(
    is_so: Callable[[], Awaitable[bool]], seconds: float = SLOW_SECONDS
) -> None:
    async with asyncio.timeout(seconds):
        while not await is_so():
            await clock.sleep(0.02)


def start(add: Any, value: int, key: str | None = None) -> "asyncio.Task[Any]":
    chosen = add if key is None else add.options(key=key)
    return asyncio.get_running_loop().create_task(chosen.enqueue(value))


async def lock(add: Any, tx: Any, keys: Iterable[str]) -> None:
    for key in keys:
        await add.options(tx=tx, key=key).enqueue(0)


async def spare_of(app: App) -> connections.SpareConnection | None:
    """The spare connection of this loop; None: there was never a need for one."""
    spares = (await app.store()).context.connections._spare_by_loop  # type: ignore[attr-defined]
    return spares.get(asyncio.get_running_loop())


async def is_spare_open(app: App) -> bool:
    spare = await spare_of(app)
    return spare is not None and spare.is_open


def test_a_key_that_is_locked_for_50_ms_beside_20_that_stay_locked(
    shop: PostgresServer,
) -> None:
    """Calls without keys and with other keys are stored while all these wait."""

    async def whole() -> None:
        async with (
            opened(shop) as app,
            open_transaction(plain(shop)) as long,
            open_transaction(plain(shop)) as short,
        ):
            add = adding(app)
            await add.enqueue(0)
            keys = [f"k{n}" for n in range(KEYS)]
            await lock(add, long, keys)
            await lock(add, short, ["one"])
            calls = [start(add, 0, key) for key in keys]
            one = start(add, 0, "one")
            queues = await waiting_queues(app)

            async def all_wait() -> bool:
                return len(queues) == KEYS + 1

            await until(all_wait)
            await clock.sleep(0.05)
            await short.execute("rollback")
            async with asyncio.timeout(SOON_SECONDS):
                assert (await one).created
            async with asyncio.timeout(SOON_SECONDS):
                for n in range(20):
                    assert (await add.enqueue(n)).created
                    assert (await add.options(key=f"free{n}").enqueue(n)).created
            assert not any(call.done() for call in calls)
            await long.execute("rollback")
            async with asyncio.timeout(SOON_SECONDS):
                jobs = await asyncio.gather(*calls)
            assert all(job.created for job in jobs)

    asyncio.run(whole())


def test_a_spare_connection_is_opened_for_the_wait_and_closed_after_it(
    shop: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connections.SPARE_IDLE_SECONDS == 5.0
    monkeypatch.setattr(connections, "SPARE_IDLE_SECONDS", 0.5)

    async def whole() -> None:
        async with (
            opened(shop) as app,
            connected(plain(shop)) as observer,
            open_transaction(plain(shop)) as tx,
        ):
            add = adding(app)
            await add.options(key="before").enqueue(0)

            async def sessions() -> int:
                return await observer.fetchval(SESSIONS)

            assert await sessions() == 1
            await lock(add, tx, ["k"])
            call = start(add, 0, "k")
            await until(lambda: is_spare_open(app))
            assert await sessions() == 2
            await clock.sleep(1.0)
            assert await is_spare_open(app), "the call still waits"
            await tx.execute("rollback")
            assert (await call).created

            async def is_one() -> bool:
                return await sessions() == 1

            await until(is_one)
            await tx.execute("begin")  # and it is opened again for the next wait
            await lock(add, tx, ["k2"])
            call = start(add, 0, "k2")
            await until(lambda: is_spare_open(app))
            await tx.execute("commit")
            assert not (await call).created
        async with connected(plain(shop)) as observer:

            async def is_none() -> bool:
                return await observer.fetchval(SESSIONS) == 0

            await until(is_none)

    asyncio.run(whole())


def test_a_wait_for_a_key_outlives_its_connections(shop: PostgresServer) -> None:
    """They are cut while a try waits for the key."""

    async def whole() -> None:
        async with (
            opened(shop) as app,
            connected(plain(shop)) as observer,
            open_transaction(plain(shop)) as tx,
        ):
            add = adding(app)
            await lock(add, tx, ["k"])
            call = start(add, 0, "k")
            await until(lambda: is_spare_open(app))

            async def is_cut() -> bool:
                return await observer.fetchval(CUT_WAITING) > 0

            for _ in range(3):
                await until(is_cut)
                await clock.sleep(0.1)
                assert not call.done()
            await tx.execute("rollback")
            async with asyncio.timeout(SLOW_SECONDS):
                assert (await call).created

    asyncio.run(whole())


@asynccontextmanager
async def all_connections_taken(shop: PostgresServer) -> AsyncIterator[None]:
    """Connect until the server refuses: `max_connections` is reached."""
    async with AsyncExitStack() as stack:
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                await stack.enter_async_context(connected(plain(shop)))
        yield


def test_without_a_spare_connection_the_own_one_is_used(shop: PostgresServer) -> None:
    async def whole() -> None:
        async with opened(shop) as app, open_transaction(plain(shop)) as tx:
            add = adding(app)
            await add.enqueue(0)
            await lock(add, tx, ["k", "stays"])
            async with all_connections_taken(shop):
                calls = [start(add, 0, "k"), start(add, 0, "stays")]
                queues = await waiting_queues(app)

                async def both_are_tried() -> bool:
                    certain = [queue.is_certain for queue in queues.values()]
                    return certain == [True, True]

                await until(both_are_tried)
                for n in range(20):
                    assert (await add.enqueue(n)).created
                    assert (await add.options(key=f"free{n}").enqueue(n)).created
                assert not await is_spare_open(app)
                assert not any(call.done() for call in calls)
                await tx.execute("rollback")
                async with asyncio.timeout(SLOW_SECONDS):
                    jobs = await asyncio.gather(*calls)
                assert all(job.created for job in jobs)
                assert not await is_spare_open(app)

    asyncio.run(whole())


def test_leases_are_renewed_behind_a_pooler_with_two_connections(
    shop: PostgresServer, require: Require
) -> None:
    """Three clients share them: the loop, the heartbeat, and the wait for keys."""
    require(pgbouncer.program(), "PgBouncer (apt install pgbouncer)")
    settings = {"worker": {"lease_seconds": LEASE_SECONDS, "heartbeat_seconds": 0.5}}

    async def whole(bouncer: pgbouncer.PgBouncer) -> None:
        app = App(bouncer.url(), name="shop", settings=settings)
        add = adding(app)
        async with app, open_transaction(plain(shop)) as tx, app.worker():
            await add.enqueue(0)
            keys = [f"k{n}" for n in range(KEYS)]
            await lock(add, tx, keys)
            calls = [start(add, 0, key) for key in keys]
            await until(lambda: is_spare_open(app))
            store = await app.store()
            begun = clock.monotonic()
            workers: set[int] = set()
            while clock.monotonic() - begun < 2 * LEASE_SECONDS:
                (row,) = await store.workers("shop")
                workers.add(row.id)
                assert row.lease_seconds_left is None or row.lease_seconds_left > 0
                assert await (await add.enqueue(7)).result(timeout=SLOW_SECONDS) == 7
                await clock.sleep(0.1)
            assert len(workers) == 1, "the worker has kept its lease"
            assert not any(call.done() for call in calls)
            await tx.execute("rollback")
            async with asyncio.timeout(SLOW_SECONDS):
                assert all(job.created for job in await asyncio.gather(*calls))

    with pgbouncer.PgBouncer(shop, default_pool_size="2") as bouncer:
        asyncio.run(whole(bouncer))
