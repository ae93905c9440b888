"""A schema for tests: made once, locked while it is used, emptied before each use.

An advisory lock keeps others out, so tests that run at the same time, in any number of
processes, get different schemas: `durio_test_1`, `durio_test_2` and so on.
"""

from dataclasses import replace
from urllib.parse import parse_qsl

from durio.model.errors import OperatingError, UsageError
from durio.stores.postgres import schema
from durio.stores.postgres.driver import (
    Connection,
    Connector,
    DriverError,
    PostgresLocation,
)
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.schema_status import in_transaction
from durio.stores.postgres.statements import statement
from durio.stores.postgres.translate import translated

SCHEMAS_MAX = 64
LOCK = 0x6475_7465  # the first key of the advisory locks; the second is the number
TRY_LOCK = statement("try_lock_schema")
UNLOCK = statement("unlock_schemas")
EMPTY = statement("empty_schema")


class ScratchSchema:
    """One schema; `acquire` and `release` run on the same event loop."""

    def __init__(self, url: str) -> None:
        if "schema" in dict(parse_qsl(url.partition("?")[2])):
            raise UsageError(
                "a test uses a schema of its own and empties it: the URL names another",
                cure="Take schema= out of the URL.",
            )
        self._url = url
        self._connection: Connection | None = None

    async def acquire(self) -> str:
        """Return the URL of an empty schema that nothing else uses until `release`."""
        location = replace(location_from_url(self._url), prepared=False)
        try:
            connection = await Connector(location, lambda _text: None).connect()
            self._connection = connection
            name = f"durio_test_{await lock_number(connection, location)}"
            location = replace(location, schema=name)
            await in_transaction(location, lambda tx: schema.migrate(tx, location))
            await empty_schema(connection, name)
        except DriverError as error:
            raise translated(error, location) from error
        return f"{self._url}{'&' if '?' in self._url else '?'}schema={name}"

    async def release(self) -> None:
        """Let others use the schema."""
        if self._connection is not None:
            # Before the close: the server notices a closed connection a little later.
            await self._connection.run(UNLOCK)
            await self._connection.close()


async def lock_number(connection: Connection, location: PostgresLocation) -> int:
    """Lock the first free number until the connection closes, and return it."""
    for number in range(1, SCHEMAS_MAX + 1):
        if (await connection.rows(TRY_LOCK, (LOCK, number)))[0][0]:
            return number
    raise OperatingError(
        f"{location.shown}: all {SCHEMAS_MAX} schemas for tests are in use",
        cure="Run fewer tests at the same time, or use another database.",
    )


async def empty_schema(connection: Connection, name: str) -> None:
    """Delete every row of every table, and start the sequences again."""
    rows = await connection.rows(EMPTY, (name,))
    await connection.run(rows[0][0])
