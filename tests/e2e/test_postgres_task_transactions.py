"""A task's own transaction on PostgreSQL when something goes wrong in it: who is to blame,
and what the server still does."""

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import psycopg
import pytest

from durio import App, Context, Job, Retry
from durio.ports.upkeep import OneWorker
from durio.stores.postgres.task_connection import task_connection_name
from tests.conformance.scene import info
from tests.conftest import Require
from tests.e2e.postgres_shop import adding, counts, plain, run_story, why_dead
from tests.servers import pgbouncer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer

SECONDS = 20
DRIVERS = ["asyncpg", "psycopg"]


async def pid_of(tx: Any) -> int:
    """Whose the connection is at the server."""
    if isinstance(tx, psycopg.AsyncConnection):
        return tx.info.backend_pid
    return await tx.fetchval("select pg_backend_pid()")


def kill(shop: PostgresServer, pid: int) -> None:
    with psycopg.connect(plain(shop)) as admin:
        admin.execute("select pg_terminate_backend(%s, 5000)", [pid])


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_connection_that_the_server_ends_is_nobodys_fault(
    shop: PostgresServer, driver: str
) -> None:
    async def story(app: App) -> None:
        @app.task(name="pay", retry=Retry(1, delays=(0.05,), jitter=False))
        async def pay(ctx: Context) -> int:
            async with ctx.transaction() as tx:
                await tx.execute("insert into mine values (1)")
                if ctx.attempt == 1:
                    kill(shop, await pid_of(tx))
                    while driver == "asyncpg" and not tx.is_closed():
                        await app.clock.sleep(0.01)
                return ctx.result(ctx.attempt)

        @app.task(name="never", retry=0)
        async def never(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                kill(shop, await pid_of(tx))
                while driver == "asyncpg" and not tx.is_closed():
                    await app.clock.sleep(0.01)

        assert "StoreUnavailable" in await why_dead(app, never)
        async with app.worker():
            job: Job[int] = await pay.enqueue()
            assert await job.result(timeout=SECONDS) == 2
        assert counts(shop)[0] == 1

    run_story(shop, story, driver=driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_another_transaction_by_hand_is_not_taken_for_ours(
    shop: PostgresServer, driver: str
) -> None:
    async def story(app: App) -> None:
        @app.task(name="pay", retry=0)
        async def pay(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("rollback")
                await tx.execute("begin")
                await tx.execute("insert into mine values (1)")

        assert "committed or rolled back itself" in await why_dead(app, pay)
        assert counts(shop)[0] == 0

    run_story(shop, story, driver=driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_task_may_choose_how_isolated_it_is(
    shop: PostgresServer, driver: str
) -> None:
    async def story(app: App) -> None:
        add = adding(app)

        @app.task(name="pay")
        async def pay(ctx: Context) -> str:
            async with ctx.transaction() as tx:
                await tx.execute("set transaction isolation level serializable")
                await tx.execute("insert into mine values (1)")
                await add.options(tx=tx).enqueue(1)
                return ctx.result("done")

        async with app.worker():
            job: Job[str] = await pay.enqueue()
            assert await job.result(timeout=SECONDS) == "done"
        assert counts(shop)[0] == 1

    run_story(shop, story, driver=driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_makes_the_end_impossible_is_told(
    shop: PostgresServer, driver: str
) -> None:
    async def story(app: App) -> None:
        @app.task(name="reads", retry=0)
        async def reads(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("set transaction read only")

        @app.task(name="hurries", retry=0)
        async def hurries(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                left.append(asyncio.create_task(tx.execute("select pg_sleep(5)")))
                await app.clock.sleep(0.05)

        left: list[asyncio.Task[Any]] = []
        assert "read-only" in await why_dead(app, reads)
        assert "in use by another task" in await why_dead(app, hurries)
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.Error):
            await left[0]

    run_story(shop, story, driver=driver)


# --- what the server still does


def check_nothing_is_left(shop: PostgresServer) -> None:
    """Nobody sleeps on with locks: the table can be had long before a sleep is over."""
    with psycopg.connect(plain(shop)) as admin:
        admin.execute("set lock_timeout = '15s'")
        admin.execute("lock table mine in exclusive mode")


def sleeping(app: App) -> Any:
    @app.task(name="slow", retry=0, timeout=(0.3, 10))
    async def slow(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("insert into mine values (1)")
            await tx.execute("select pg_sleep(60)")

    return slow


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_time_limit_ends_the_statement_too(shop: PostgresServer, driver: str) -> None:
    async def story(app: App) -> None:
        assert "SoftTimeLimit" in await why_dead(app, sleeping(app))
        check_nothing_is_left(shop)

    run_story(shop, story, driver=driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_time_limit_ends_the_statement_behind_a_pooler(
    shop: PostgresServer, driver: str
) -> None:
    Require()(pgbouncer.program(), "PgBouncer")

    async def story() -> None:
        with PgBouncer(shop) as bouncer:
            async with App(bouncer.url(driver=driver), name="shop") as app:
                assert "SoftTimeLimit" in await why_dead(app, sleeping(app))
                check_nothing_is_left(shop)

    asyncio.run(story())


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_is_under_way_elsewhere_ends_with_the_block(
    shop: PostgresServer, driver: str
) -> None:
    """A task of the task's own is at it: nobody cancels that one."""

    async def story(app: App) -> None:
        left: list[asyncio.Task[Any]] = []

        @app.task(name="fail", retry=0)
        async def fail(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("insert into mine values (1)")
                left.append(asyncio.create_task(tx.execute("select pg_sleep(60)")))
                await app.clock.sleep(0.05)
                raise ValueError("no stock")

        assert "no stock" in await why_dead(app, fail)
        check_nothing_is_left(shop)
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.Error):
            await left[0]

    run_story(shop, story, driver=driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_rescue_ends_what_its_worker_had_open(
    shop: PostgresServer, driver: str
) -> None:
    """As of a worker that stands still: its locks would keep the next attempt."""

    async def story(app: App) -> None:
        store = await app.store()
        lost, alive = [await store.register(info(), 60.0) for _ in range(2)]
        theirs, others = await store.transaction(lost), await store.transaction(alive)
        await theirs.connection.execute("select pg_advisory_xact_lock(1)")
        await others.connection.execute("select pg_advisory_xact_lock(2)")
        await store.rescue(100, OneWorker(lost))
        with psycopg.connect(plain(shop)) as next_one:
            next_one.execute("set lock_timeout = '10s'")
            next_one.execute("select pg_advisory_xact_lock(1)")
        await others.connection.execute("select pg_advisory_xact_lock(3)")
        await theirs.roll_back()
        await others.roll_back()

    run_story(shop, story, driver=driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_block_that_ends_while_its_connection_is_in_use(
    shop: PostgresServer, driver: str
) -> None:
    """Whoever still asks there must not find that its memory is gone."""

    async def story(app: App) -> None:
        async def broken() -> None:
            await app.clock.sleep(0.01)
            raise ConnectionError("no route")

        @app.task(name="pay", retry=0)
        async def pay(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                await asyncio.gather(tx.execute("select pg_sleep(0.2)"), broken())

        @app.task(name="add", retry=0)
        async def add(ctx: Context, value: int) -> int:
            async with ctx.transaction() as tx:
                await tx.execute("select 1")
                return ctx.result(value)

        for value in range(8):
            assert "no route" in await why_dead(app, pay)
            async with app.worker():
                job: Job[int] = await add.enqueue(value)
                assert await job.result(timeout=SECONDS) == value

    run_story(shop, story, driver=driver)


@pytest.mark.parametrize("driver", DRIVERS)
def test_its_name_ends_with_the_transaction(shop: PostgresServer, driver: str) -> None:
    """A pooler gives the connection to others afterwards, who must not be ended."""
    names = "select application_name from pg_stat_activity where pid = %s"

    async def story(app: App) -> None:
        store = await app.store()
        own = await store.transaction(await store.register(info(), 60.0))
        with psycopg.connect(plain(shop), autocommit=True) as admin:
            pid = await pid_of(own.connection)
            assert str(admin.execute(names, [pid]).fetchone()).startswith("('durio tx ")
            await own.connection.execute("rollback")
            assert admin.execute(names, [pid]).fetchone() == ("durio",)
        await own.roll_back()

    run_story(shop, story, driver=driver)


def test_schemas_with_long_names_are_told_apart() -> None:
    one, other = (task_connection_name("a" * 60 + end, 1) for end in "xy")
    assert one != other
    assert len(one) <= 63
