"""The server of the PostgreSQL benchmarks: one from `--store`, or a temporary one.

Run them from a checkout as modules, `.venv/bin/python -m benchmarks.postgres_scaling`. The
temporary server is durable (fsync and synchronous_commit on), comes from the wheel that
the tests use, and is removed at the end. On a given server they use their own schema.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from durio.bench import workload
from durio.bench.targets import PostgresBenchTarget
from durio.ports.control import AuditNote, QueueChange
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
LANE = f"{workload.NAMESPACE}:default"
LOOK_SECONDS = 0.1

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


async def rows(url: str, sql: str, *args: object) -> list[tuple[Any, ...]]:
    """Run one statement on a new connection."""
    async with connected(url) as ask:
        return await ask(sql, *args)


async def fill(jobs: int) -> None:
    """Enqueue this many jobs into a paused queue."""
    store = await workload.app.store()
    await store.set_queue(LANE, QueueChange(paused=True), AuditNote(who="benchmark"))
    await workload.nothing.enqueue_many([(n,) for n in range(jobs)])


async def resume() -> None:
    store = await workload.app.store()
    await store.set_queue(LANE, QueueChange(paused=False), AuditNote(who="benchmark"))


async def workers_ready(count: int, seconds: float) -> None:
    """Wait until this many workers have a lease."""
    store = await workload.app.store()
    async with asyncio.timeout(seconds):
        found = await store.workers(workload.NAMESPACE)
        while len(found) < count:
            await asyncio.sleep(LOOK_SECONDS)
            found = await store.workers(workload.NAMESPACE)
