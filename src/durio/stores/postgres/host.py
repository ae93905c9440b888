"""Connections for tasks: as plain as a driver makes them, in a transaction of ours."""

import asyncio
import os
import socket
from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol

from durio.model.errors import WrongTransaction
from durio.stores.postgres.driver import DriverError, Place
from durio.stores.postgres.foreign import (
    ASYNCPG,
    PSYCOPG,
    AsyncpgGuest,
    Guest,
    PsycopgGuest,
)

CLOSE_SECONDS = 2.0
ACTIVE = 1  # of libpq, which psycopg hands on


class Host(Protocol):
    """One connection, and the transaction on it."""

    connection: Any

    async def begin(self, place: Place, mark: str, *, prepared: bool) -> None:
        """Connect and begin; the mark is set in the transaction."""
        ...

    def guest(self) -> Guest:
        """What writes the end of the job there."""
        ...

    async def commit(self) -> None:
        """Commit it."""
        ...

    async def end(self) -> None:
        """Close the connection, a bounded time; what is not committed is gone."""
        ...


class AsyncpgHost:
    """By asyncpg: blocks of `tx.transaction()` are savepoints in it."""

    def __init__(self) -> None:
        self.connection: Any = None
        self._driver: Any = import_module(ASYNCPG)
        self._transaction: Any = None

    async def begin(self, place: Place, mark: str, *, prepared: bool) -> None:
        """Connect and begin."""
        options: dict[str, Any] = {} if prepared else {"statement_cache_size": 0}
        try:
            self.connection = await self._driver.asyncpg.connect(
                place.dsn,
                timeout=place.connect_seconds,
                server_settings=dict(place.settings),
                **options,
            )
            self._transaction = self.connection.transaction()
            await self._transaction.start()
            await self.connection.execute(mark)
        except TimeoutError as error:
            raise no_answer(place) from error
        except (*self._driver.FAILURES, ValueError) as error:
            raise self._driver.told(error, lost=True) from error

    def guest(self) -> Guest:
        """What writes the end of the job there."""
        if self.connection.is_closed():
            raise gone()
        if not self.connection.is_in_transaction():
            raise ended_by_hand()
        return AsyncpgGuest(self.connection)

    async def commit(self) -> None:
        """Commit it."""
        try:
            await self._transaction.commit()
        except self._driver.FAILURES as error:
            lost = self.connection.is_closed()
            raise self._driver.told(error, lost=lost) from error

    async def end(self) -> None:
        """Close the connection; asyncpg asks the server to give up what is under way."""
        if self.connection is not None:
            with suppress(*self._driver.FAILURES):
                await self.connection.close(timeout=CLOSE_SECONDS)


class PsycopgHost:
    """By psycopg: blocks of `tx.transaction()` are savepoints in it."""

    def __init__(self) -> None:
        self.connection: Any = None
        self._driver: Any = import_module(PSYCOPG)

    async def begin(self, place: Place, mark: str, *, prepared: bool) -> None:
        """Connect and begin: the first statement does.

        It is none that takes a snapshot: the task may choose an isolation level still.
        """
        psycopg = self._driver.psycopg
        name = place.settings.get("application_name", "durio")
        try:
            self.connection = await psycopg.AsyncConnection.connect(
                place.dsn,
                application_name=name,
                connect_timeout=max(2, round(place.connect_seconds)),
            )
            if not prepared:
                self.connection.prepare_threshold = None
            await self.connection.execute(mark)
        except (psycopg.Error, OSError) as error:
            raise self._driver.told(error, lost=True) from error

    def guest(self) -> Guest:
        """What writes the end of the job there."""
        if self.connection.broken:
            raise gone()
        if self.connection.closed or not self.connection.info.transaction_status:
            raise ended_by_hand()
        return PsycopgGuest(self.connection, is_async=True)

    async def commit(self) -> None:
        """Commit it."""
        try:
            await self.connection.commit()
        except (self._driver.psycopg.Error, OSError) as error:
            raise self._driver.told(error, lost=self.connection.closed) from error

    async def end(self) -> None:
        """Close the connection, after the server was asked to give up what is under way.

        Else it would go on with that, and keep its locks; libpq only says goodbye.
        """
        connection = self.connection
        if connection is None or connection.closed:
            return
        try:
            if connection.info.transaction_status == ACTIVE:
                with suppress(self._driver.psycopg.Error, OSError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await connection.cancel_safe(timeout=CLOSE_SECONDS)
        finally:
            await self._finish(connection)

    async def _finish(self, connection: Any) -> None:
        """Whoever still asks something there owns its memory: then it is only cut."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS), connection.lock:
                connection.pgconn.finish()
        except TimeoutError:
            with socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)


HOSTS: dict[str, type[AsyncpgHost] | type[PsycopgHost]] = {
    "asyncpg": AsyncpgHost,
    "psycopg": PsycopgHost,
}


def no_answer(place: Place) -> DriverError:
    """The server did not let us in, and did not refuse."""
    return DriverError(f"no answer within {place.connect_seconds:g} s", lost=True)


def gone() -> DriverError:
    """Nothing of it was committed."""
    text = "it was closed, by the server or by hand, inside ctx.transaction()"
    return DriverError(text, lost=True, unsent=True)


def ended_by_hand() -> WrongTransaction:
    """What was written is committed or gone, without the end of the job."""
    return WrongTransaction(
        "the transaction was ended by hand: the end of the job cannot be in it",
        cure="Leave commit and rollback to ctx.transaction(); raise to undo it.",
    )
