"""The end of a task's own transaction on PostgreSQL: nobody comes in between, and what makes
it impossible is told."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from durio import App, Context, Job
from durio.errors import JobDead, StoreUnavailable, WrongTransaction
from durio.stores.postgres import schema_status, task_connection
from durio.stores.postgres.driver import DriverError
from durio.stores.postgres.finish import FINISH_JOBS
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.statements import SchemaStatements
from tests.e2e.postgres_shop import adding, counts, plain, run_story, why_dead
from tests.servers.postgres import PostgresServer

SECONDS = 20
DRIVERS = ["asyncpg", "psycopg"]
FINISHES = SchemaStatements("durio")[FINISH_JOBS]


def run(shop: PostgresServer, *statements: str) -> None:
    """By somebody else."""
    with psycopg.connect(plain(shop), autocommit=True) as admin:
        for sql in statements:
            admin.execute(sql)


async def at_the_end(app: App, call: Callable[[], None]) -> list[str]:
    """Call this just before the end of a job is written; all such statements."""
    seen: list[str] = []

    def look(text: str) -> None:
        if text == FINISHES:
            seen.append(text)
            call()

    store: Any = await app.store()
    store.context.connections.on_statement = look
    return seen


# --- what a task has left behind


@pytest.mark.parametrize("ending", ["rollback", "select 1/0", "commit"])
def test_nobody_comes_between_the_end_of_a_job_and_its_commit(
    shop: PostgresServer, ending: str
) -> None:
    async def story(app: App) -> None:
        txs: list[Any] = []
        left: list[asyncio.Task[Any]] = []

        @app.task(name="pay", retry=0)
        async def pay(ctx: Context) -> str:
            async with ctx.transaction() as tx:
                txs.append(tx)
                await tx.execute("insert into mine values (1)")
                return ctx.result("paid")

        async def interfere() -> None:
            own = getattr(txs[0], ending, None)
            await (txs[0].execute(ending) if own is None else own())

        await at_the_end(app, lambda: left.append(asyncio.create_task(interfere())))
        async with app.worker():
            job: Job[str] = await pay.enqueue()
            assert await job.result(timeout=SECONDS) == "paid"
        assert counts(shop)[0] == 1
        with pytest.raises(psycopg.OperationalError, match="closed"):
            await left[0]

    run_story(shop, story, driver="psycopg")


def test_a_block_within_that_somebody_is_still_in_is_told(
    shop: PostgresServer,
) -> None:
    async def story(app: App) -> None:
        inside, left = asyncio.Event(), asyncio.Event()
        others: list[asyncio.Task[None]] = []

        @app.task(name="pay", retry=0)
        async def pay(ctx: Context) -> None:
            async def other(tx: Any) -> None:
                async with tx.transaction():
                    await tx.execute("insert into mine values (1)")
                    inside.set()
                    await left.wait()

            async with ctx.transaction() as tx:
                others.append(asyncio.create_task(other(tx)))
                await inside.wait()

        assert "in use by another task" in await why_dead(app, pay)
        left.set()
        await others[0]
        assert counts(shop)[0] == 0

    run_story(shop, story, driver="psycopg")


# --- at another isolation level


@pytest.mark.parametrize("driver", DRIVERS)
def test_progress_is_told_with_the_end_of_a_block(
    shop: PostgresServer, driver: str
) -> None:
    async def story(app: App) -> None:
        add, told, go = adding(app), asyncio.Event(), asyncio.Event()

        @app.task(name="pay", retry=0)
        async def pay(ctx: Context) -> str:
            async with ctx.transaction() as tx:
                await tx.execute("set transaction isolation level repeatable read")
                await tx.execute("insert into mine values (1)")
                await ctx.progress(1, 2)
                told.set()
                await go.wait()
                return ctx.result("paid")

        async with app.worker():
            job: Job[str] = await pay.enqueue()
            await asyncio.wait_for(told.wait(), SECONDS)
            # Whatever waits to be told goes along with the end of this one.
            assert await (await add.enqueue(1)).result(timeout=SECONDS) == 1
            assert (await job.status()).progress is None
            go.set()
            assert await job.result(timeout=SECONDS) == "paid"
            progress = (await job.status()).progress
            assert progress is not None
            assert (progress.done, progress.total) == (1, 2)

    run_story(shop, story, driver=driver)


def test_progress_of_a_block_that_fails_is_told_after_it(shop: PostgresServer) -> None:
    async def story(app: App) -> None:
        go = asyncio.Event()

        @app.task(name="pay", retry=0)
        async def pay(ctx: Context) -> None:
            with suppress(KeyError):
                async with ctx.transaction():
                    await ctx.progress(1, 2)
                    raise KeyError
            await go.wait()

        async with asyncio.timeout(SECONDS), app.worker():
            job: Job[None] = await pay.enqueue()
            while (await job.status()).progress is None:
                await app.clock.sleep(0.01)
            go.set()
            await job.result()

    run_story(shop, story)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_snapshot_that_is_too_old_is_not_tried_again_in_vain(
    shop: PostgresServer, driver: str
) -> None:
    async def story(app: App) -> None:
        @app.task(name="pay", retry=0)
        async def pay(ctx: Context) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("set transaction isolation level repeatable read")
                await tx.execute("insert into mine values (1)")
                run(shop, "update durio.run set progress = progress")

        seen = await at_the_end(app, lambda: None)
        told = await why_dead(app, pay)
        assert "ctx.transaction() conflicts with another transaction" in told
        assert "the next attempt repeats it" in told
        assert len(seen) == 1

    run_story(shop, story, driver=driver)


# --- what a block sets


@pytest.mark.parametrize("driver", DRIVERS)
def test_settings_that_are_in_the_way_of_the_end_are_told(
    shop: PostgresServer, driver: str
) -> None:
    async def story(app: App) -> None:
        @app.task(name="pay", retry=0)
        async def pay(ctx: Context, sql: str) -> None:
            async with ctx.transaction() as tx:
                await tx.execute(sql)

        async with app.worker():
            for sql, cure in (
                ("set local role tenant", "Run `reset role`"),
                ("reset all", "or ran `reset all`"),
            ):
                with pytest.raises(JobDead) as dead:
                    await (await pay.enqueue(sql)).result(timeout=SECONDS)
                assert cure in dead.value.error.message
                assert "grant" not in dead.value.error.message

    run(shop, "drop role if exists tenant", "create role tenant")
    run_story(shop, story, driver=driver)


def test_a_callers_role_without_our_rights_is_told(shop: PostgresServer) -> None:
    async def story(app: App) -> None:
        add = adding(app)
        async with await psycopg.AsyncConnection.connect(plain(shop)) as tx:
            await tx.execute("set local role tenant")
            with pytest.raises(StoreUnavailable, match=r"reset role.*grant usage"):
                await add.options(tx=tx).enqueue(1)

    run(shop, "drop role if exists tenant", "create role tenant")
    run_story(shop, story)


def test_a_database_without_an_encoding(shop: PostgresServer) -> None:
    run(
        shop,
        "create database plain_bytes encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' "
        "template template0",
    )
    schema_status.migrate(shop.url("plain_bytes"))

    async def story() -> None:
        async with App(shop.url("plain_bytes", driver="psycopg"), name="shop") as app:

            @app.task(name="pay", retry=0)
            async def pay(ctx: Context) -> str:
                async with ctx.transaction() as tx:
                    told = await tx.execute("select 'bezahlt: 5 €'::text")
                    return ctx.result((await told.fetchone())[0])

            async with app.worker():
                job: Job[str] = await pay.enqueue()
                assert await job.result(timeout=SECONDS) == "bezahlt: 5 €"

    asyncio.run(story())


# --- a schema that is made anew


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_store_finds_its_schema_again(shop: PostgresServer, driver: str) -> None:
    async def story(app: App) -> None:
        add = adding(app)

        @app.task(name="pay", retry=0)
        async def pay(ctx: Context) -> str:
            async with ctx.transaction() as tx:
                await add.options(tx=tx).enqueue(1)
                return ctx.result("paid")

        await app.store()
        run(shop, "drop schema durio cascade")
        await asyncio.to_thread(schema_status.migrate, shop.url())
        async with app.worker():
            job: Job[str] = await pay.enqueue()
            assert await job.result(timeout=SECONDS) == "paid"

    run_story(shop, story, driver=driver)


def test_one_who_may_not_wait_finds_it_the_next_time(shop: PostgresServer) -> None:
    async def story(app: App) -> None:
        add = adding(app)
        await app.store()
        run(shop, "drop schema durio cascade")
        await asyncio.to_thread(schema_status.migrate, shop.url())
        with psycopg.connect(plain(shop)) as tx:
            with pytest.raises(WrongTransaction, match="another database"):
                await add.options(tx=tx).enqueue(1)
            async with asyncio.timeout(SECONDS):
                while True:
                    try:
                        await add.options(tx=tx).enqueue(1)
                        break
                    except WrongTransaction:
                        await app.clock.sleep(0.01)
        assert counts(shop)[1] == 1

    run_story(shop, story)


# --- the connection


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_server_that_does_not_begin_is_not_waited_for(
    shop: PostgresServer, driver: str
) -> None:
    async def story() -> None:
        own = task_connection.TASK_CONNECTIONS[driver]()
        place = replace(location_from_url(shop.url()), call_seconds=0.05)
        try:
            with pytest.raises(DriverError, match=r"no answer within 0\.05 s"):
                await own.begin(place, "select pg_sleep(60)", prepared=True)
        finally:
            await own.end()

    asyncio.run(story())


def test_the_end_of_a_connection_that_closes_meanwhile(
    shop: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_connection, "CLOSE_SECONDS", 0.05)

    async def story() -> None:
        own = task_connection.PsycopgTaskConnection()
        await own.begin(location_from_url(shop.url()), "select 1", prepared=True)
        await own.connection.lock.acquire()  # somebody still asks something there
        asyncio.get_running_loop().call_soon(own.connection.pgconn.finish)
        await own.end()
        assert own.connection.closed

    asyncio.run(story())
