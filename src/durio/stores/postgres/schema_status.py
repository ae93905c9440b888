"""Status, text and `migrate` of a schema's migrations, without opening a store.

Only `migrate` writes. `store_at` has accepted the URL.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from durio.model.migration import MigrationStatus
from durio.stores.postgres import schema
from durio.stores.postgres.driver import (
    BEGIN_WRITE,
    Connection,
    Connector,
    DriverError,
    PostgresLocation,
    time_limit,
)
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.statements import SchemaStatements
from durio.stores.postgres.transaction import ReadTransaction
from durio.stores.postgres.translate import translated

T = TypeVar("T")
MADE_AT_OPEN = False  # `durio migrate` is a separate step
MIGRATE_SECONDS = 600.0  # another process may be migrating a large table


def status(url: str) -> MigrationStatus:
    """Return which migrations the schema has, and which this code would apply."""
    return run(in_transaction(location_from_url(url), schema.migration_status))


def migrate(url: str) -> list[str]:
    """Create or update the schema; return the names of the applied migrations."""
    location = replace(location_from_url(url), call_seconds=MIGRATE_SECONDS)
    return run(in_transaction(location, lambda tx: schema.migrate(tx, location)))


def script(url: str) -> str:
    return schema.script(location_from_url(url).schema)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the work on a new event loop; the caller has none."""
    return asyncio.run(work)


async def in_transaction(
    location: PostgresLocation, work: Callable[[ReadTransaction], Awaitable[T]]
) -> T:
    """Run one transaction on a new connection, within `call_seconds`."""
    connector = Connector(replace(location, prepared=False), lambda _text: None)
    try:
        connection = await connector.connect()
        try:
            async with time_limit(location.call_seconds):
                return await run_and_commit(connector, connection, work)
        finally:
            with suppress(DriverError):
                await connection.close()
    except DriverError as error:
        raise translated(error, location) from error


async def run_and_commit(
    connector: Connector,
    connection: Connection,
    work: Callable[[ReadTransaction], Awaitable[T]],
) -> T:
    """Begin, run the work, commit; after an error, closing the connection rolls back."""
    await connection.run(connector.begin(BEGIN_WRITE))
    statements = SchemaStatements(connector.location.schema)
    answer = await work(ReadTransaction(connection, statements))
    await connection.run("commit")
    return answer
