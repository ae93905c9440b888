"""The same promises on PostgreSQL, for every driver: jobs with the user's transaction, and
a task's effects with its end."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine

from durio import App, Context, Job
from durio.errors import JobDead, WrongTransaction
from durio.stores.postgres import schema_status
from tests.e2e.caller_transactions import POSTGRES, Undo
from tests.e2e.postgres_shop import adding, counts, opened, plain
from tests.servers.postgres import PostgresServer

SECONDS = 20
SYNC = ["psycopg", "sqlalchemy.Connection", "sqlalchemy.Session"]


@pytest.mark.proves("M6", "M210")
@pytest.mark.parametrize("kind", POSTGRES)
def test_a_job_exists_if_and_only_if_its_transaction_commits(
    shop: PostgresServer, kind: str
) -> None:
    opens, scheme = POSTGRES[kind]
    url = plain(shop, scheme)

    async def whole() -> None:
        async with opened(shop) as app:
            add = adding(app)
            with suppress(Undo):
                async with opens(url) as tx:
                    await add.options(tx=tx).enqueue(1)
                    await add.options(tx=tx, key="k").enqueue(1)
                    assert counts(shop) == (0, 0)
                    raise Undo
            assert counts(shop) == (0, 0)
            async with opens(url) as tx:
                job: Job[int] = await add.options(tx=tx).enqueue(2)
                keyed = await add.options(tx=tx, key="k").enqueue(3)
                same = await add.options(tx=tx, key="k").enqueue(3)
                jobs = await add.options(tx=tx, delay=0.05).enqueue_many([(4,), (5,)])
            assert (same.id, same.created) == (keyed.id, False)
            assert counts(shop) == (1, 4)
            async with app.worker():
                each = [job, keyed, *jobs]
                assert [await j.result(timeout=SECONDS) for j in each] == [2, 3, 4, 5]

    asyncio.run(whole())


@pytest.mark.parametrize("kind", SYNC)
def test_a_sync_caller_writes_in_its_own_thread(
    shop: PostgresServer, kind: str
) -> None:
    opens, scheme = POSTGRES[kind]

    async def story(app: App, add: Any) -> None:
        del app
        async with opens(plain(shop, scheme)) as tx:
            # Another thread has no loop of its own, and the driver belongs to none.
            await asyncio.to_thread(add.options(tx=tx).enqueue_sync, 1)

    async def whole() -> None:
        async with opened(shop) as app:
            await story(app, adding(app))
        assert counts(shop) == (1, 1)

    asyncio.run(whole())


def test_workers_hear_of_the_commit_at_once(shop: PostgresServer) -> None:
    opens, scheme = POSTGRES["sqlalchemy.AsyncSession"]

    async def whole() -> None:
        async with opened(shop) as app:
            app.settings = type(app.settings)(
                worker=type(app.settings.worker)(poll_seconds=60)
            )
            add = adding(app)
            async with app.worker():
                await (await add.enqueue(0)).result(timeout=SECONDS)
                async with opens(plain(shop, scheme)) as tx:
                    job = await add.options(tx=tx).enqueue(1)
                assert await job.result(timeout=5) == 1

    asyncio.run(whole())


# --- what is refused


async def refused(add: Any, tx: Any) -> str:
    with pytest.raises(WrongTransaction) as told:
        await add.options(tx=tx).enqueue(1)
    return told.value.what


def test_a_transaction_that_is_over_is_refused(shop: PostgresServer) -> None:
    url = plain(shop)

    async def whole() -> None:
        async with opened(shop) as app:
            add = adding(app)
            connection = await asyncpg.connect(url)
            assert "no open transaction" in await refused(add, connection)
            with suppress(Undo):
                async with connection.transaction():
                    with suppress(asyncpg.PostgresError):
                        await connection.execute("select 1/0")
                    assert "failed already" in await refused(add, connection)
                    raise Undo
            await connection.close()
            assert "closed" in await refused(add, connection)
            with psycopg.connect(url, autocommit=True) as auto:
                assert "no open transaction" in await refused(add, auto)
            with psycopg.connect(url) as broken:
                with suppress(psycopg.Error):
                    broken.execute("select 1/0")
                assert "failed already" in await refused(add, broken)
                broken.rollback()
            assert "closed" in await refused(add, broken)
        assert counts(shop) == (0, 0)

    asyncio.run(whole())


def test_another_database_is_refused(shop: PostgresServer) -> None:
    url = plain(shop)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("create database empty")
        admin.execute("create database other")
    schema_status.migrate(shop.url("other"))
    there = {
        name: urlsplit(url)._replace(path=f"/{name}") for name in ("empty", "other")
    }

    async def whole() -> None:
        async with opened(shop) as app:
            add = adding(app)
            with psycopg.connect(urlunsplit(there["empty"])) as empty:
                assert "one without our tables" in await refused(add, empty)
            with psycopg.connect(urlunsplit(there["other"])) as other:
                assert "another database ('other')" in await refused(add, other)
            engine = create_engine("sqlite://")
            with engine.begin() as sqlite:
                assert "the store is PostgreSQL" in await refused(add, sqlite)
            engine.dispose()
        assert counts(shop) == (0, 0)

    asyncio.run(whole())


# --- a task's own transaction


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_rows_result_and_end_come_together(shop: PostgresServer, driver: str) -> None:
    async def whole() -> None:
        async with opened(shop, driver=driver) as app:
            add = adding(app)

            @app.task(name="pay")
            async def pay(ctx: Context, n: int) -> int:
                async with ctx.transaction() as tx:
                    await tx.execute("insert into mine values (1)")
                    async with tx.transaction():  # a savepoint, no commit
                        await tx.execute("insert into mine values (2)")
                    await add.options(tx=tx).enqueue(n)
                    return ctx.result(n * 10)

            @app.task(name="fail", retry=0)
            async def fail(ctx: Context) -> None:
                async with ctx.transaction() as tx:
                    await tx.execute("insert into mine values (3)")
                    await add.options(tx=tx).enqueue(3)
                    raise Undo

            async with app.worker():
                failed = await fail.enqueue()
                job = await pay.enqueue(7)
                assert await job.result(timeout=SECONDS) == 70
                with pytest.raises(JobDead):
                    await failed.result(timeout=SECONDS)
                while len(finished(shop)) < 2:  # the job that it enqueued
                    await app.clock.sleep(0.02)
            assert counts(shop)[0] == 2
            with psycopg.connect(plain(shop)) as connection:
                sql = "select task, count(*) from durio.hist group by 1 order by 1"
                done = connection.execute(sql).fetchall()
                assert done == [("shop.add", 1), ("shop.pay", 1)]

    asyncio.run(whole())


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_sync_task_has_none(shop: PostgresServer, driver: str) -> None:
    """It is told so before a line of its block has run."""
    ran: list[str] = []

    async def whole() -> None:
        async with opened(shop, driver=driver) as app:

            @app.task(name="pay", retry=0)
            def pay(ctx: Context) -> None:
                with ctx.transaction():
                    ran.append("inside")

            async with app.worker():
                job = await pay.enqueue()
                with pytest.raises(JobDead, match="UsageError: a sync task has no tra"):
                    await job.result(timeout=SECONDS)
                error = (await job.status()).last_error
                assert error is not None
                assert "Make it `async def`" in error.message
        assert not ran

    asyncio.run(whole())


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_transaction_that_cannot_commit_is_told_in_words(
    shop: PostgresServer, driver: str
) -> None:
    late = """
    create temp table late (n int unique deferrable initially deferred) on commit drop;
    insert into late values (1); insert into late values (1)
    """

    async def whole() -> None:
        async with opened(shop, driver=driver) as app:

            @app.task(name="late", retry=0)
            async def breaks(ctx: Context) -> None:
                async with ctx.transaction() as tx:
                    await tx.execute("insert into mine values (1)")
                    await tx.execute(late)

            @app.task(name="caught", retry=0)
            async def caught(ctx: Context) -> None:
                async with ctx.transaction() as tx:
                    await tx.execute("insert into mine values (1)")
                    with suppress(asyncpg.PostgresError, psycopg.Error):
                        await tx.execute("select 1/0")

            @app.task(name="ended", retry=0)
            async def ended(ctx: Context) -> None:
                async with ctx.transaction() as tx:
                    await tx.execute("rollback")

            words = {
                breaks: "breaks a rule",
                caught: "failed already",
                ended: "committed or rolled back itself",
            }
            async with app.worker():
                for task, word in words.items():
                    with pytest.raises(JobDead) as dead:
                        await (await task.enqueue()).result(timeout=SECONDS)
                    assert word in dead.value.error.message
        assert counts(shop)[0] == 0

    asyncio.run(whole())


TASKS = """
import asyncio, os
import asyncpg
from durio import App, Context

app = App(os.environ["SHOP_URL"], name="shop")
NTH = int(os.environ.get("SHOP_DIES_AT", "0"))
seen = {"tx": None, "left": NTH}

def counting(name):
    real = getattr(asyncpg.Connection, name)
    async def counted(self, *args, **options):
        if self is seen["tx"]:
            seen["left"] -= 1
            if seen["left"] == 0:
                os.kill(os.getpid(), 9)
        return await real(self, *args, **options)
    setattr(asyncpg.Connection, name, counted)

for name in ("execute", "fetch"):
    counting(name)

@app.task
async def mail(n: int) -> int:
    return n

@app.task
async def pay(ctx: Context, n: int) -> int:
    async with ctx.transaction() as tx:
        if NTH:
            seen["tx"] = tx
        await tx.execute("insert into mine values ($1)", n)
        await mail.options(tx=tx).enqueue(n)
        ctx.result(n * 10)
    if NTH and os.environ.get("SHOP_DIES_AFTER"):
        os.kill(os.getpid(), 9)
    return n * 10

async def main():
    async with app:
        job = await pay.options(queue=f"q{NTH}").enqueue(NTH)
        async with app.worker(queues=[f"q{NTH}"]):  # not those of the dead before it
            await job.result(timeout=20)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.proves("M95")
@pytest.mark.timeout(180)
def test_a_kill_at_every_statement_leaves_both_or_neither(
    shop: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_URL", shop.url())
    script = tmp_path / "shop_tasks.py"
    script.write_text(TASKS, encoding="utf-8")

    def run(nth: int, **more: str) -> int:
        env = {"SHOP_DIES_AT": str(nth), **more}
        return subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, **env},
            check=False,
            timeout=60,
        ).returncode

    async def emptied() -> None:
        async with opened(shop):
            pass

    asyncio.run(emptied())
    killed = 0
    while run(killed + 1) == -signal.SIGKILL:
        killed += 1
        assert paid_and_mailed(shop) == (set(), set()), f"killed at {killed}"
    assert killed >= 5, "too few statements were looked at"
    assert run(99, SHOP_DIES_AFTER="1") == -signal.SIGKILL
    both = {killed + 1, 99}
    assert paid_and_mailed(shop) == (both, both)

    async def again() -> None:
        """Everybody who was killed is rescued; nobody is paid twice."""
        names: dict[str, Any] = {"__name__": "shop_tasks"}
        exec(compile(TASKS, "shop_tasks.py", "exec"), names)  # noqa: S102
        app: App = names["app"]
        async with app, app.worker():
            while len(finished(shop)) < 2 * (killed + 2):
                await app.clock.sleep(0.1)

    asyncio.run(asyncio.wait_for(again(), 90))
    everybody = sorted({*range(1, killed + 1), *both})
    with psycopg.connect(plain(shop)) as connection:
        rows = connection.execute("select n from mine order by n").fetchall()
    assert [n for (n,) in rows] == everybody


def paid_and_mailed(shop: PostgresServer) -> tuple[set[int], set[int]]:
    """Whose rows are there, and whose mails."""
    with psycopg.connect(plain(shop)) as connection:
        mine = {n for (n,) in connection.execute("select n from mine")}
        sql = """
        select convert_from(payload, 'utf8')::json -> 1 ->> 'n' from durio.job
        where task = 'shop.mail' union all
        select convert_from(payload, 'utf8')::json -> 1 ->> 'n' from durio.hist
        where task = 'shop.mail'
        """
        return mine, {int(n) for (n,) in connection.execute(sql)}


def finished(shop: PostgresServer) -> list[Any]:
    with psycopg.connect(plain(shop)) as connection:
        return connection.execute("select task from durio.hist").fetchall()
