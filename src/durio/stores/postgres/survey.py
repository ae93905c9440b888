"""A look at a schema from outside: is it there, which migrations has it, their text.

Only `migrate` writes. The URL is one that `store_at` has taken.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from durio.model.migration import MigrationStatus
from durio.stores.postgres import schema
from durio.stores.postgres.driver import Connection, DriverError, Place
from durio.stores.postgres.opening import WRITE, Opening
from durio.stores.postgres.place import place_of
from durio.stores.postgres.statements import Filled
from durio.stores.postgres.transaction import Reading
from durio.stores.postgres.translate import translated

T = TypeVar("T")
MADE_AT_OPEN = False  # `durio migrate` is a step of its own
MIGRATE_SECONDS = 600.0  # another one may be at it, with a large table


def status(url: str) -> MigrationStatus:
    """Which migrations the schema has, and which this code would apply."""
    return now(once(place_of(url), schema.migration_status))


def migrate(url: str) -> list[str]:
    """Make the schema, or bring it up to date; the names of what was applied."""
    place = replace(place_of(url), call_seconds=MIGRATE_SECONDS)
    return now(once(place, lambda tx: schema.migrate(tx, place)))


def script(url: str) -> str:
    """Every migration, in order, as SQL."""
    return schema.script(place_of(url).schema)


def now(asked: Coroutine[Any, Any, T]) -> T:
    """On a loop of its own: whoever asks has none yet."""
    return asyncio.run(asked)


async def once(place: Place, work: Callable[[Reading], Awaitable[T]]) -> T:
    """One transaction on a connection of its own."""
    opening = Opening(replace(place, prepared=False), lambda _text: None)
    try:
        connection = await opening.connect()
        try:
            async with asyncio.timeout(place.call_seconds):
                return await committed(opening, connection, work)
        finally:
            with suppress(DriverError):
                await connection.close()
    except TimeoutError as error:
        text = f"no answer within {place.call_seconds:g} s"
        raise translated(DriverError(text, lost=True), place) from error
    except DriverError as error:
        raise translated(error, place) from error


async def committed(
    opening: Opening, connection: Connection, work: Callable[[Reading], Awaitable[T]]
) -> T:
    """Begin, work, commit; closing the connection rolls back."""
    await connection.run(opening.begin(WRITE))
    answer = await work(Reading(connection, Filled(opening.place.schema), None, None))
    await connection.run("commit")
    return answer
