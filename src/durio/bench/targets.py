"""The stores that the bench measures: new ones, one after another, and the bare driver.

On a PostgreSQL server the bench creates schemas of its own and drops them again. It does
not change the schema that the URL names. Costs are those of the whole server (its log) or
of the whole database (commits), so they include the work of other clients.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import apsw

from durio.bench import workload
from durio.bench.raw_postgres import measure_raw_postgres
from durio.bench.raw_sqlite import RawRates, measure_raw_sqlite
from durio.bench.server_cpu import postmaster_of
from durio.host.clock import HostClock
from durio.model.errors import InvalidURL, StoreError, StoreUnavailable
from durio.stores.postgres import schema, schema_status
from durio.stores.postgres.driver import (
    Connection,
    Connector,
    DriverError,
    PostgresLocation,
)
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.statements import quoted
from durio.stores.postgres.translate import translated


class ServerCosts(NamedTuple):
    """Counters of a server since it started, for all of its clients."""

    wal_bytes: float
    commits: float
    dead_tuples: float  # row versions left behind by an update or a delete


class SqliteBenchTarget:
    """New files in a folder, or the one file that the user named."""

    def __init__(self, folder: Path, url: str | None) -> None:
        if url is not None and ":memory:" in url:
            raise InvalidURL(
                f"{url} exists in one process only; the bench starts another",
                cure="Name a file: sqlite:///bench.db.",
            )
        self._folder = folder
        self._url = url
        self._files = 0

    async def new_store(self) -> str:
        """Return the URL of a store without jobs, or of the named file."""
        return self._url or f"sqlite:///{self._next('bench')}"

    async def measure_raw(self, jobs: int) -> RawRates:
        """Measure the driver without Durio, with the same `synchronous` as the store."""
        asked = self._url or ""
        synchronous = "normal" if "synchronous=normal" in asked else "full"
        return measure_raw_sqlite(self._next("bare"), jobs, synchronous)

    async def server_costs(self) -> None:
        """Return None: there is no server."""

    async def postmaster(self) -> None:
        """Return None: there is no server."""

    async def engine_facts(self) -> dict[str, Any]:
        return {"sqlite": apsw.sqlite_lib_version()}

    async def clean_up(self) -> None:
        """Do nothing: the bench removes its folder, and a named file is kept."""

    def _next(self, name: str) -> Path:
        self._files += 1
        return self._folder / f"{name}-{self._files}.db"


PREFIX = "durio_bench_"
NAME_LENGTH = 8
INSUFFICIENT_PRIVILEGE = "42501"
FLUSH_SECONDS = 0.3  # a server process reports its counters when it ends
SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "wal_level")

READ_COSTS = """
select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8,
  (
    select xact_commit::float8 from pg_stat_database
    where datname = current_database()
  ), (
    select coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 from pg_stat_all_tables
    where starts_with(schemaname, $1::text)
  )
"""
READ_DEAD_TUPLES = """
select coalesce(sum(n_dead_tup), 0)::int8 from pg_stat_all_tables
where schemaname = $1::text
"""
# Through a Unix socket both addresses are null.
READ_SERVER_PROCESS = """
select pg_backend_pid(),
  inet_server_addr() is not distinct from inet_client_addr()
"""
READ_VERSION = "select current_setting('server_version')"
READ_SETTINGS = """
select s.name, current_setting(s.name) from unnest($1::text[]) as s (name)
"""


class PostgresBenchTarget:
    """One database with a new schema for each measurement."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._place = location_from_url(url)
        self._clock = HostClock()
        self._opening = Connector(self._place, lambda _text: None)
        self._name = PREFIX + self._clock.new_id().hex()[-NAME_LENGTH:]
        self._made: list[str] = []

    async def new_store(self) -> str:
        """Create a new schema; drop the one before it."""
        await self._drop_all()
        return url_with(self._url, await self._make())

    async def measure_raw(self, jobs: int) -> RawRates:
        """Measure in a new schema; the next measurement drops it."""
        await self._drop_all()
        name = await self._make()
        async with self._connected() as connection:
            return await measure_raw_postgres(connection, name, jobs)

    async def server_costs(self) -> ServerCosts:
        """Read the server's counters, after closing our connections.

        A server process reports its counters when its connection ends.
        """
        await workload.app.close()
        await self._clock.sleep(FLUSH_SECONDS)
        async with self._connected() as connection:
            return ServerCosts(*(await connection.rows(READ_COSTS, (self._name,)))[0])

    async def postmaster(self) -> int | None:
        """Return the id of the server's first process; None if it is not on this host."""
        async with self._connected() as connection:
            serving, is_local = (await connection.rows(READ_SERVER_PROCESS, ()))[0]
            # Read while the connection is open, because the process ends with it.
            return postmaster_of(serving) if is_local else None

    async def engine_facts(self) -> dict[str, Any]:
        """Return version, durability settings, and dead row versions in the last schema."""
        async with self._connected() as connection:
            version = (await connection.rows(READ_VERSION, ()))[0][0]
            settings = await connection.rows(READ_SETTINGS, (list(SETTINGS),))
            rows = await connection.rows(READ_DEAD_TUPLES, (self._made[-1],))
        return {
            "postgresql": version,
            "driver": self._place.driver,
            "settings": dict(settings),
            "dead_tuples_left": rows[0][0],
        }

    async def clean_up(self) -> None:
        """Drop the schemas that are left; an error here must not hide an earlier one."""
        with suppress(StoreError):
            await self._drop_all()

    # --- schemas

    async def _make(self) -> str:
        name = f"{self._name}_{len(self._made) + 1}"
        place = replace(self._place, schema=name)
        self._made.append(name)
        try:
            await schema_status.in_transaction(
                place, lambda tx: schema.migrate(tx, place)
            )
        except StoreError as error:
            if error.values.get("state") != INSUFFICIENT_PRIVILEGE:
                raise
            raise no_create_right(self._place, error) from error
        return name

    async def _drop_all(self) -> None:
        if not self._made:
            return
        async with self._connected() as connection:
            for name in self._made:
                await connection.run(f"drop schema if exists {quoted(name)} cascade")

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Connection, None]:
        try:
            connection = await self._opening.connect()
            try:
                yield connection
            finally:
                with suppress(DriverError):
                    await connection.close()
        except DriverError as error:
            raise translated(error, self._place) from error


BenchTarget = SqliteBenchTarget | PostgresBenchTarget


def url_with(url: str, name: str) -> str:
    """Return the same URL with another schema."""
    where, _, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    return f"{where}?{urlencode({**options, 'schema': name}, quote_via=quote)}"


def no_create_right(selection: PostgresLocation, error: StoreError) -> StoreUnavailable:
    """Return the error for a role that may not create a schema."""
    return StoreUnavailable(
        f"{selection.shown}: the bench needs a schema of its own, and this role may "
        f"not create one ({error.what})",
        cure="grant create on database NAME to ROLE; or name a role that may, or a "
        "database of its own for the bench.",
    )
