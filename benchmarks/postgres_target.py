"""The server of `postgres_history.py`: one from `--store`, or a temporary one.

The temporary server is durable (fsync and synchronous_commit on), comes from the wheel that
the tests use, and is removed at the end. On a given server a new schema is used.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from durio.bench import workload
from durio.bench.targets import PostgresBenchTarget
from durio.stores.postgres.driver import Connector
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.statements import SchemaStatements
from tests.servers.postgres import PostgresServer

SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "top",
}

Ask = Callable[..., Awaitable[list[tuple[Any, ...]]]]


@asynccontextmanager
async def target(url: str | None) -> AsyncGenerator[PostgresBenchTarget, None]:
    """Schemas on the given server, or on one that lives as long as this block."""
    if url is not None:
        async with schemas_at(url) as found:
            yield found
        return
    with PostgresServer(settings=SETTINGS) as server:
        async with schemas_at(server.url()) as found:
            yield found


@asynccontextmanager
async def schemas_at(url: str) -> AsyncGenerator[PostgresBenchTarget, None]:
    """Make schemas there, and drop them at the end."""
    found = PostgresBenchTarget(url)
    try:
        yield found
    finally:
        await workload.app.close()
        await found.clean_up()


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Ask, None]:
    """Run statements on a new connection."""
    place = location_from_url(url)
    connection = await Connector(place, lambda _text: None).connect()
    filled = SchemaStatements(place.schema)

    async def ask(sql: str, *args: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.rows(filled[sql], args)]

    try:
        yield ask
    finally:
        await connection.close()
