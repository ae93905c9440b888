"""Connections to a real server: lost, cut, forked, pooled, left behind by their loops."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from textwrap import dedent

import pytest

from durio.errors import StoreError, StoreUnavailable
from durio.host.clock import HostClock
from durio.model.settings import RetentionSettings
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.driver import Connector
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.transaction import PostgresTransaction
from tests.conftest import Require
from tests.servers import pgbouncer
from tests.servers.postgres import PostgresServer

DRIVERS = ("asyncpg", "psycopg")
each_driver = pytest.mark.parametrize("driver", DRIVERS)
PID = "select pg_backend_pid()"


def connections_of(url: str, said: list[str] | None = None) -> Connections:
    opening = Connector(
        location_from_url(url), (said if said is not None else []).append
    )
    return Connections(opening, HostClock(), None, RetentionSettings())


async def pid_of(lines: Connections) -> int:
    return int((await lines.read(PID))[0][0])


async def number_of_sessions(lines: Connections) -> int:
    asked = (
        "select count(*)::int4 from pg_stat_activity where application_name = 'durio'"
    )
    return int((await lines.read(asked))[0][0])


@each_driver
def test_a_restart_is_survived(postgres: PostgresServer, driver: str) -> None:
    async def run() -> None:
        lines = connections_of(postgres.url(driver=driver))
        before = await pid_of(lines)
        postgres.restart()
        assert await pid_of(lines) != before
        postgres.restart()

        async def work(tx: PostgresTransaction) -> int:
            return await tx.value("select 7")

        assert await lines.write(work) == 7
        postgres.restart()
        assert list((await lines.write_one("select 8"))[0]) == [8]
        postgres.kill()
        with pytest.raises(StoreUnavailable) as told:
            await lines.write_one("select 9")
        assert not told.value.unknown  # nobody was there to hear it
        postgres.start()
        assert list((await lines.read("select 10"))[0]) == [10]
        await lines.close()

    asyncio.run(run())


@each_driver
def test_a_statement_that_was_cut_is_unknown(
    postgres: PostgresServer, driver: str
) -> None:
    """But one inside a transaction is not: that was never committed."""

    async def cut(
        lines: Connections, other: Connections, work: asyncio.Task[object]
    ) -> StoreError:
        asked = "select pid from pg_stat_activity where query like '%pg_sleep(77)%'"
        while not (rows := await other.read(f"{asked} and pid <> pg_backend_pid()")):
            assert not work.done()
        await other.read("select pg_terminate_backend($1::int4)", rows[0][0])
        with pytest.raises(StoreError) as told:
            await work
        assert await pid_of(lines) != rows[0][0]
        return told.value

    async def run() -> None:
        lines, other = (
            connections_of(postgres.url(driver=driver)),
            connections_of(postgres.url()),
        )
        loop = asyncio.get_running_loop()
        task = loop.create_task(lines.write_one("select pg_sleep(77)"))
        assert (await cut(lines, other, task)).unknown

        async def work(tx: PostgresTransaction) -> object:
            return await tx.rows("select pg_sleep(77)")

        assert not (
            await cut(lines, other, loop.create_task(lines.write(work)))
        ).unknown
        await lines.close()
        await other.close()

    asyncio.run(run())


@each_driver
def test_a_cancelled_call_leaves_no_answer_behind(
    postgres: PostgresServer, driver: str
) -> None:
    async def run() -> None:
        lines = connections_of(postgres.url(driver=driver))
        before = await pid_of(lines)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await lines.write_one("select pg_sleep(9)")
        assert await pid_of(lines) != before
        await lines.close()

    asyncio.run(run())


@each_driver
def test_a_deadlock_is_tried_again(postgres: PostgresServer, driver: str) -> None:
    """Two that lock the same rows the other way round both get through."""
    lock = "select pg_advisory_xact_lock($1::int8)"

    async def run() -> None:
        ours, theirs = (
            connections_of(postgres.url(driver=driver)),
            connections_of(postgres.url()),
        )
        met = asyncio.Barrier(2)
        tries: list[int] = []

        async def locks(tx: PostgresTransaction, first: int, second: int) -> int:
            tries.append(first)
            await tx.rows(lock, first)
            if len(tries) <= 2:
                await met.wait()
            await tx.rows(lock, second)
            return first

        answers = await asyncio.gather(
            ours.write(lambda tx: locks(tx, 1, 2)),
            theirs.write(lambda tx: locks(tx, 2, 1)),
        )
        assert answers == [1, 2]
        assert len(tries) == 3
        await ours.close()
        await theirs.close()

    asyncio.run(run())


@each_driver
def test_a_swallowed_failure_is_no_commit(
    postgres: PostgresServer, driver: str
) -> None:
    async def run() -> None:
        lines = connections_of(postgres.url(driver=driver))

        async def work(tx: PostgresTransaction) -> None:
            with suppress(Exception):  # what no operation of ours may do
                await tx.rows("select 1/0")

        with pytest.raises(StoreError):
            await lines.write(work)
        assert await pid_of(lines)
        await lines.close()

    asyncio.run(run())


@each_driver
def test_a_loop_that_ends_takes_its_connection_along(
    postgres: PostgresServer, driver: str
) -> None:
    lines = connections_of(postgres.url(driver=driver))

    async def until_alone() -> None:
        async with asyncio.timeout(10):
            while await number_of_sessions(lines) > 1:
                pass

    for _ in range(3):
        asyncio.run(until_alone())
    # One that ends without a word is swept at the next opening.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(pid_of(lines))
    loop.close()
    asyncio.run(until_alone())


FORKING = """
    import asyncio, os, sys
    from durio.host.clock import HostClock
    from durio.stores.postgres.location import location_from_url
    from durio.stores.postgres.store import PostgresStore

    store = PostgresStore(location_from_url(sys.argv[1]), HostClock())
    pid = "select pg_backend_pid()"

    async def ask():
        await store.open()
        return (await store.context.connections.read(pid))[0][0]

    async def run():
        before = await ask()
        child = os.fork()
        if child == 0:
            return before, None
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert status == 0, status
        assert await ask() == before, "the child has spoken on our connection"
        await store.close()
        return before, child

    loop = asyncio.new_event_loop()
    before, child = loop.run_until_complete(run())
    if child is None:
        # The parent's loop is not ours: never closed, never run again.
        import asyncio.events
        asyncio.events._set_running_loop(None)
        other = asyncio.run(ask())
        assert other != before
        asyncio.run(store.close())
        print("child")
    else:
        loop.close()
        print("parent")
"""


@each_driver
def test_a_fork_leaves_the_parent_s_connection_alone(
    postgres: PostgresServer, driver: str
) -> None:
    """The child ends as any program does: whatever its collector closes, too."""
    ended = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-c",
            dedent(FORKING),
            postgres.url(driver=driver),
        ],
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.split()) == ["child", "parent"]


@each_driver
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_behind_a_pooler(
    postgres: PostgresServer, driver: str, mode: str, require: Require
) -> None:
    """No settings at the start, nothing prepared: told once, and everything works."""
    require(pgbouncer.program(), "PgBouncer (apt install pgbouncer)")
    said: list[str] = []

    async def run(bouncer: pgbouncer.PgBouncer) -> None:
        lines = [connections_of(bouncer.url(driver=driver), said) for _ in range(3)]

        async def ask(n: int) -> None:
            each = lines[n % 3]
            rows = await each.write_one("select $1::int4, pg_sleep(0.01)", n)
            assert rows[0][0] == n
            off = await each.read("select current_setting('enable_seqscan')")
            assert off[0][0] == "off"

        await asyncio.gather(*(ask(n) for n in range(60)))
        assert all(each.is_pooled for each in lines)
        for each in lines:
            await each.close()

    with pgbouncer.PgBouncer(postgres, mode=mode) as bouncer:
        asyncio.run(run(bouncer))
    assert len(said) == 3
    assert "connection pooler" in said[0]


@each_driver
def test_a_pooler_that_refuses_prepared_statements(
    postgres: PostgresServer, driver: str, require: Require
) -> None:
    """Somebody asks for them all the same: they are given up, and nothing fails."""
    require(pgbouncer.program(), "PgBouncer (apt install pgbouncer)")
    said: list[str] = []

    async def run(bouncer: pgbouncer.PgBouncer) -> None:
        url = bouncer.url(driver=driver, prepared="on")
        lines = [connections_of(url, said) for _ in range(3)]

        async def ask(n: int) -> None:
            each = lines[n % 3]
            assert (await each.read("select $1::int4", n))[0][0] == n
            assert (await each.write_one("select $1::int8", n))[0][0] == n

        await asyncio.gather(*(ask(n) for n in range(60)))
        for each in lines:
            await each.close()

    with pgbouncer.PgBouncer(postgres) as bouncer:
        asyncio.run(run(bouncer))
    assert all("they are switched off" in each for each in said)
