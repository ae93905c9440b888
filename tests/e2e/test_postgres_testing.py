"""A testing box on PostgreSQL: a schema of its own, made once and emptied between boxes."""

import asyncio
from datetime import timedelta

import asyncpg
import psycopg
import pytest

from durio import App, Context
from durio.errors import UsageError
from durio.testing import testing
from tests.servers.postgres import PostgresServer

app = App("postgresql://never-opened.invalid/shop", name="shop")


@app.task
async def double(n: int) -> int:
    return n * 2


@app.task(retry=0)
async def pay(ctx: Context, cents: int) -> int:
    async with ctx.transaction() as tx:
        await tx.execute("insert into payment values ($1)", cents)
        return ctx.result(cents)


def schemas(postgres: PostgresServer) -> dict[str, int]:
    """The schemas of boxes, with the id that their migration table has now."""
    with psycopg.connect(postgres.url()) as connection:
        rows = connection.execute(
            "select nspname, c.oid::int8 from pg_namespace n join pg_class c"
            " on c.relnamespace = n.oid and c.relname = 'migration'"
            " where nspname like 'durio_test_%' order by 1"
        ).fetchall()
    return dict(rows)


def test_the_schema_is_made_once_and_emptied_between_boxes(
    postgres: PostgresServer,
) -> None:
    made = []
    for _ in range(2):
        with testing(app, url=postgres.url()) as box:
            assert box.jobs() == []
            job = double.enqueue_sync(2)
            box.drain_sync()
            assert job.result_sync() == 4
            assert [each.state for each in box.jobs()] == ["done"]
        made.append(schemas(postgres))
    assert made[0] == made[1]
    assert list(made[0]) == ["durio_test_1"]


def test_two_boxes_at_once_have_two_schemas(postgres: PostgresServer) -> None:
    with testing(app, url=postgres.url()) as outer:
        double.enqueue_sync(1)
        with testing(app, url=postgres.url()) as inner:
            assert inner.url != outer.url
            assert inner.jobs() == []
        assert len(outer.jobs()) == 1


def test_the_server_goes_by_the_clock_of_the_box(postgres: PostgresServer) -> None:
    async def story() -> None:
        with testing(app, url=postgres.url()) as box:
            await double.options(delay="1h").enqueue(1)
            await box.drain()
            assert box.jobs()[0].state == "scheduled"
            box.clock.advance("59m")
            await box.drain()
            assert box.jobs()[0].state == "scheduled"
            await box.drain(until="1m")
            (job,) = box.jobs()
            assert job.state == "done"
            assert job.finished_at - job.created_at >= timedelta(hours=1)

    asyncio.run(story())


def test_both_kinds_of_transaction_work(postgres: PostgresServer) -> None:
    async def story() -> None:
        connection = await asyncpg.connect(postgres.url())
        await connection.execute("create table if not exists payment (cents int)")
        with testing(app, url=postgres.url()) as box:
            async with connection.transaction():
                await pay.options(tx=connection).enqueue(5)
                assert box.jobs() == []
            assert [job.arguments for job in box.jobs()] == [{"cents": 5}]
            await box.drain()
            assert box.jobs()[0].state == "done"
        assert await connection.fetchval("select cents from payment") == 5
        await connection.close()

    asyncio.run(story())


def test_a_schema_in_the_url_is_refused(postgres: PostgresServer) -> None:
    with pytest.raises(UsageError, match="a test uses a schema of its own"):
        testing(app, url=postgres.url(schema="durio")).__enter__()


def test_the_schema_is_free_again_after_an_error(postgres: PostgresServer) -> None:
    urls: list[str] = []

    def fail_in_a_box() -> None:
        with testing(app, url=postgres.url()) as box:
            urls.append(box.url)
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fail_in_a_box()
    assert urls[0] == urls[1]
