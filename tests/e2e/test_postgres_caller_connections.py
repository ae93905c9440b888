"""What callers make of their connections to PostgreSQL is their business: jobs are written
there as they are, or are refused in words that are true."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row
from psycopg.types.numeric import NumericLoader
from psycopg.types.string import TextLoader
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from durio import App
from durio.errors import JobNotFound, StoreUnavailable, WrongTransaction
from durio.keys import replace
from durio.stores.postgres import caller_connection
from durio.stores.postgres.statements import SCHEMA, statement
from tests.e2e.caller_transactions import Undo
from tests.e2e.postgres_shop import adding, counts, opened, plain
from tests.servers.postgres import PostgresServer
from tests.servers.statements import names_in

SECONDS = 20
TEXT = 'a\\b"c\x7fü'
Story = Callable[[App, Any], Awaitable[None]]


def run_story(shop: PostgresServer, story: Story, **options: str) -> None:
    """With an App and its task."""

    async def whole() -> None:
        async with opened(shop, **options) as app:
            await story(app, adding(app))

    asyncio.run(whole())


async def fill(app: App, tx: Any) -> None:
    """All the ways into the store, by one transaction."""

    @app.task(name="echo")
    async def echo(said: str) -> str:
        return said

    one = echo.options(tx=tx)
    await one.enqueue(TEXT)
    keyed = await echo.options(tx=tx, key="k").enqueue(TEXT)
    same = await echo.options(tx=tx, key="k").enqueue(TEXT)
    assert (same.id, same.created) == (keyed.id, False)
    first = await echo.options(tx=tx, key="r", unique=replace).enqueue("other")
    last = await echo.options(tx=tx, key="r", unique=replace).enqueue(TEXT)
    assert last.id == first.id
    await echo.options(tx=tx, delay=0.01).enqueue_many([(TEXT,), (TEXT,)])


async def check_all_done(shop: PostgresServer, app: App) -> None:
    """Each job was stored as it was meant, and can run."""
    with psycopg.connect(plain(shop)) as connection:
        ids = connection.execute("select id::text from durio.job").fetchall()
    assert len(ids) == 5
    async with app.worker():
        for (job_id,) in ids:
            job = await app.job(job_id)
            assert await job.result(timeout=SECONDS) == TEXT


# --- what their owners have taught them


async def codecs(connection: Any, *types: str, **codec: Any) -> None:
    for name in types:
        await connection.set_type_codec(name, schema="pg_catalog", **codec)


class Dotted(asyncpg.Record):
    """As people like rows."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@asynccontextmanager
async def taught_asyncpg(url: str, how: str) -> AsyncIterator[Any]:
    more: dict[str, Any] = {"record_class": Dotted} if how == "record" else {}
    connection = await asyncpg.connect(url, **more)
    try:
        if how == "json":
            await codecs(
                connection, "json", "jsonb", encoder=json.dumps, decoder=json.loads
            )
        elif how == "uuid":
            await codecs(connection, "uuid", encoder=str, decoder=str)
        elif how.startswith("set "):
            await connection.execute(how)
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


def teach_psycopg(connection: Any, how: str) -> None:
    adapters = connection.adapters
    if how == "uuid":
        adapters.register_loader("uuid", TextLoader)
    elif how == "float8":
        adapters.register_loader("float8", NumericLoader)
    elif how == "int8":
        adapters.register_loader("int8", TextLoader)
    elif how == "client":
        connection.cursor_factory = psycopg.ClientCursor
    elif how in FACTORIES:
        connection.row_factory = FACTORIES[how]


FACTORIES: dict[str, Any] = {
    "dict_row": dict_row,
    "scalar_row": scalar_row,
    "namedtuple_row": namedtuple_row,
    "class_row": class_row(dict),
}
SETTINGS = [
    "set extra_float_digits = 0",
    "set bytea_output = 'escape'",
    "set standard_conforming_strings = off",
    "set client_encoding = 'latin1'",
]


@pytest.mark.parametrize("how", ["json", "uuid", "record", *SETTINGS])
def test_what_asyncpg_was_taught_changes_no_job(shop: PostgresServer, how: str) -> None:
    async def story(app: App, _add: Any) -> None:
        async with taught_asyncpg(plain(shop), how) as tx:
            await fill(app, tx)
        await check_all_done(shop, app)

    run_story(shop, story)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "how", ["uuid", "float8", "int8", "client", *FACTORIES, *SETTINGS]
)
def test_what_psycopg_was_taught_changes_no_job(
    shop: PostgresServer, how: str, *, is_async: bool
) -> None:
    async def story(app: App, _add: Any) -> None:
        url = plain(shop)
        if is_async:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                if how.startswith("set "):
                    await connection.execute(how)
                teach_psycopg(connection, how)
                await fill(app, connection)
        else:
            with psycopg.connect(url) as tx:
                if how.startswith("set "):
                    tx.execute(how)
                teach_psycopg(tx, how)
                await fill(app, tx)
        await check_all_done(shop, app)

    run_story(shop, story)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_the_store_keeps_its_bytes_whatever_strings_are(
    shop: PostgresServer, driver: str
) -> None:
    async def story(app: App, _add: Any) -> None:
        @app.task(name="echo")
        async def echo(said: str) -> str:
            return said

        first = await echo.options(key="k").enqueue(TEXT)
        again = await echo.options(key="k").enqueue(TEXT)
        assert (again.id, again.created) == (first.id, False)
        async with app.worker():
            assert await first.result(timeout=SECONDS) == TEXT

    with psycopg.connect(plain(shop), autocommit=True) as admin:
        role = "alter role postgres {} standard_conforming_strings"
        admin.execute(role.format("set") + " = off")
        try:
            run_story(shop, story, driver=driver)
        finally:
            admin.execute(role.format("reset"))


def backwards(said: str) -> str:
    return said[::-1]


def viewed(said: str) -> memoryview:
    return memoryview(bytes.fromhex(said.removeprefix("\\x")))


def boom(said: object) -> Any:
    raise KeyError(said)


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "a decimal": ("float8", {"encoder": str, "decoder": Decimal}),
    "a view": (
        "bytea",
        {"encoder": lambda it: "\\x" + bytes(it).hex(), "decoder": viewed},
    ),
    "a text": ("int8", {"encoder": str, "decoder": str}),
    "a cipher": ("text", {"encoder": backwards, "decoder": backwards}),
    "a number": ("uuid", {"encoder": str, "decoder": lambda s: UUID(s).int}),
    "no way there": ("float8", {"encoder": boom, "decoder": float}),
    "no way back": ("text", {"encoder": str, "decoder": boom}),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_connection_that_would_change_our_values_is_refused(
    shop: PostgresServer, how: str
) -> None:
    name, codec = REFUSED[how]

    async def story(_app: App, add: Any) -> None:
        connection = await asyncpg.connect(plain(shop))
        await codecs(connection, name, **codec)
        async with connection.transaction():
            assert "codecs or an encoding of its own" in await refused(add, connection)
            await connection.execute("insert into mine values (1)")  # it is not broken
        await connection.close()
        assert counts(shop) == (1, 0)

    run_story(shop, story)


def test_text_that_comes_as_bytes_is_refused(shop: PostgresServer) -> None:
    async def story(_app: App, add: Any) -> None:
        with psycopg.connect(plain(shop), client_encoding="sql_ascii") as tx:
            assert "it makes b'Aa'" in await refused(add, tx)

    run_story(shop, story)


def test_ids_are_known_by_the_names_of_their_columns(shop: PostgresServer) -> None:
    """asyncpg's rows do not tell their types, and a caller's ids may be anything."""

    async def story(_app: App, _add: Any) -> None:
        connection = await asyncpg.connect(plain(shop))
        names = names_in("enqueue", "keys", "bounds", "finish")
        names.remove("finish_jobs")  # only on the store's own connections
        for name in ("read_identity", *names):
            text = statement(name).replace(SCHEMA, "durio")
            for column in (await connection.prepare(text)).get_attributes():
                is_id = column.type.name == "uuid"
                assert is_id == (column.name == caller_connection.ID), (
                    name,
                    column.name,
                )
        await connection.close()

    run_story(shop, story)


# --- what is refused


async def refused(add: Any, tx: Any) -> str:
    with pytest.raises(WrongTransaction) as told:
        await add.options(tx=tx).enqueue(1)
    return told.value.what


def test_a_read_only_transaction_is_told_as_that(shop: PostgresServer) -> None:
    async def story(_app: App, add: Any) -> None:
        connection = await asyncpg.connect(plain(shop))
        async with connection.transaction(readonly=True):
            assert "read-only" in await refused(add, connection)
            await connection.fetch("select 1")  # it is not broken
        await connection.close()
        with psycopg.connect(plain(shop)) as tx:
            tx.read_only = True
            assert "read-only" in await refused(add, tx)

    run_story(shop, story)


@pytest.mark.parametrize("is_async", [False, True])
def test_psycopg_in_the_middle_of_something_is_refused(
    shop: PostgresServer, *, is_async: bool
) -> None:
    async def story(_app: App, add: Any) -> None:
        url, copy = plain(shop), "copy mine from stdin"
        if is_async:
            async with await psycopg.AsyncConnection.connect(url) as tx:
                async with tx.pipeline():
                    assert "pipeline mode" in await refused(add, tx)
                async with tx.cursor().copy(copy):
                    assert "in use" in await refused(add, tx)
                await add.options(tx=tx).enqueue(1)
        else:
            with psycopg.connect(url) as tx:
                with tx.pipeline():
                    assert "pipeline mode" in await refused(add, tx)
                with tx.cursor().copy(copy):
                    assert "in use" in await refused(add, tx)
                await add.options(tx=tx).enqueue(1)
        assert counts(shop) == (0, 1)

    run_story(shop, story)


def test_two_at_once_on_one_connection_of_asyncpg(shop: PostgresServer) -> None:
    async def story(_app: App, add: Any) -> None:
        connection = await asyncpg.connect(plain(shop))
        with suppress(Undo):
            async with connection.transaction():
                slow = asyncio.create_task(connection.execute("select pg_sleep(0.2)"))
                await asyncio.sleep(0)  # it has begun
                assert "in use by another task" in await refused(add, connection)
                await slow
                raise Undo
        await connection.close()

    run_story(shop, story)


def test_a_connection_of_another_loop_is_refused(shop: PostgresServer) -> None:
    opened_there, over = threading.Event(), threading.Event()
    there: list[Any] = []

    async def other() -> None:
        connection = await asyncpg.connect(plain(shop))
        async with connection.transaction():
            there.append(connection)
            opened_there.set()
            await asyncio.to_thread(over.wait)
            assert await connection.fetchval("select 1") == 1  # its owner still uses it
        await connection.close()

    async def story(_app: App, add: Any) -> None:
        running = asyncio.create_task(asyncio.to_thread(asyncio.run, other()))
        await asyncio.to_thread(opened_there.wait)
        assert "another event loop" in await refused(add, there[0])
        over.set()
        await running

    run_story(shop, story)


def test_sessions_that_cannot_say_where_they_are(shop: PostgresServer) -> None:
    async def story(_app: App, add: Any) -> None:
        with Session() as session:
            assert "not bound to one database" in await refused(add, session)
        auto = create_engine(
            plain(shop, "postgresql+psycopg"), isolation_level="AUTOCOMMIT"
        )
        with Session(auto) as session, pytest.raises(WrongTransaction) as told:
            await add.options(tx=session).enqueue(1)
        assert "AUTOCOMMIT" in told.value.cure
        auto.dispose()
        engine = create_async_engine(plain(shop, "postgresql+asyncpg"))
        async with AsyncSession(engine) as session, session.begin():
            assert "inner side" in await refused(add, session.sync_session)
        await engine.dispose()
        assert counts(shop) == (0, 0)

    run_story(shop, story)


# --- others, and the end


@pytest.mark.parametrize("level", ["repeatable_read", "serializable"])
def test_a_key_that_a_snapshot_cannot_see_is_told(
    shop: PostgresServer, level: Any
) -> None:
    async def story(_app: App, add: Any) -> None:
        connection = await asyncpg.connect(plain(shop))
        late = add.options(key="k", tx=connection)
        with suppress(Undo):
            async with connection.transaction(isolation=level):
                await connection.fetch("select 1 from mine")
                await add.options(key="k").enqueue(1)  # somebody else, meanwhile
                with pytest.raises(StoreUnavailable) as told:
                    await late.enqueue(1)
                raise Undo
        assert "conflicts with another" in told.value.what
        assert "repeat the whole" in told.value.cure
        async with connection.transaction(isolation=level):
            job = await late.enqueue(1)
        assert not job.created
        await connection.close()

    run_story(shop, story)


def test_a_savepoint_that_is_rolled_back_takes_its_job(shop: PostgresServer) -> None:
    async def story(_app: App, add: Any) -> None:
        with psycopg.connect(plain(shop)) as tx:
            with suppress(Undo), tx.transaction():
                gone = await add.options(tx=tx, key="k").enqueue(1)
                raise Undo
            kept = await add.options(tx=tx, key="k").enqueue(2)
        assert kept.created
        with pytest.raises(JobNotFound):
            await gone.status()
        assert (await kept.status()).state == "ready"

    run_story(shop, story)


def test_a_lost_connection_is_the_callers_to_replace(shop: PostgresServer) -> None:
    async def story(_app: App, add: Any) -> None:
        tx = psycopg.connect(plain(shop))
        tx.execute("insert into mine values (1)")
        with psycopg.connect(plain(shop)) as admin:
            admin.execute(
                "select pg_terminate_backend(%s, 5000)", [tx.info.backend_pid]
            )
        with pytest.raises(StoreUnavailable) as told:
            await add.options(tx=tx).enqueue(1)
        assert "the connection of tx was lost" in told.value.what
        assert "on another connection" in told.value.cure
        tx.close()
        assert counts(shop) == (0, 0)

    run_story(shop, story)
