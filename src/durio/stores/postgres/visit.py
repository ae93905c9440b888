"""A short visit to a server: one connection, some questions, nothing written."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from durio.stores.postgres.driver import Connection, DriverError, Place, Row
from durio.stores.postgres.opening import Opening
from durio.stores.postgres.statements import Filled
from durio.stores.postgres.transaction import Reading
from durio.stores.postgres.translate import translated


@dataclass(slots=True)
class Visit:
    """One connection for all checks; None: the server could not be reached."""

    place: Place
    opening: Opening = field(init=False)
    warnings: list[str] = field(default_factory=list[str])
    connection: Connection | None = None

    def __post_init__(self) -> None:
        self.opening = Opening(self.place, self.warnings.append)

    async def rows(self, sql: str, *args: Any) -> list[Row]:
        """One question, in a transaction of its own."""
        connection = self.connection
        if connection is None:
            return []
        async with self._asking():
            await connection.run(self.opening.begin("begin read only"))
            try:
                reading = Reading(connection, Filled(self.place.schema), None, None)
                return list(await reading.rows(sql, *args))
            finally:
                with suppress(DriverError):
                    await connection.run("rollback")

    async def enter(self) -> None:
        """Connect."""
        async with self._asking():
            self.connection = await self.opening.connect()

    async def leave(self) -> None:
        """Say goodbye."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(DriverError):
                await connection.close()

    @asynccontextmanager
    async def _asking(self) -> AsyncGenerator[None, None]:
        try:
            async with asyncio.timeout(self.place.call_seconds):
                yield
        except TimeoutError as late:
            text = f"no answer within {self.place.call_seconds:g} s"
            raise translated(DriverError(text, lost=True), self.place) from late
        except DriverError as failure:
            raise translated(failure, self.place) from failure
