"""Connections for tasks: as plain as a driver makes them, in a transaction of ours."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
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
    in_use,
)

CLOSE_SECONDS = 2.0
ACTIVE = 1  # of libpq, which psycopg hands on


class Host(Protocol):
    """One connection, and the transaction on it."""

    connection: Any

    async def begin(self, place: Place, mark: str, *, prepared: bool) -> None:
        """Connect and begin; the mark is set in the transaction."""
        ...

    def held(self) -> AbstractAsyncContextManager[Guest]:
        """What writes the end of the job there and commits; alone, till both are done.

        A task may have left something behind that goes on writing, or rolls back.
        """
        ...

    async def end(self) -> None:
        """Close the connection, a bounded time; what is not committed is gone."""
        ...


class AsyncpgHost:
    """By asyncpg: blocks of `tx.transaction()` are savepoints in it."""

    def __init__(self) -> None:
        self.connection: Any = None
        self._driver: Any = import_module(ASYNCPG)

    async def begin(self, place: Place, mark: str, *, prepared: bool) -> None:
        """Connect and begin."""
        options: dict[str, Any] = {} if prepared else {"statement_cache_size": 0}
        try:
            async with within(place.connect_seconds):
                self.connection = await self._driver.asyncpg.connect(
                    place.dsn,
                    timeout=place.connect_seconds,
                    server_settings=dict(place.settings),
                    **options,
                )
            async with within(place.call_seconds):
                await self.connection.transaction().start()
                await self.connection.execute(mark)
        except (*self._driver.FAILURES, ValueError) as error:
            raise self._driver.told(error, lost=True) from error

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[Guest, None]:
        """Whoever comes in between is refused by asyncpg; or we, where they were quicker."""
        if self.connection.is_closed():
            raise gone()
        if not self.connection.is_in_transaction():
            raise ended_by_hand()
        yield AsyncpgGuest(self.connection)

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
            async with within(place.connect_seconds):
                self.connection = await psycopg.AsyncConnection.connect(
                    place.dsn,
                    application_name=name,
                    client_encoding="utf8",  # also where the database has none
                )
            if not prepared:
                self.connection.prepare_threshold = None
            async with within(place.call_seconds):
                await self.connection.execute(mark)
        except (psycopg.Error, OSError) as error:
            raise self._driver.told(error, lost=True) from error

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[Guest, None]:
        """Whoever comes in between waits for the lock, and finds a closed connection."""
        connection = self.connection
        if connection.broken:
            raise gone()
        if connection.closed or not connection.info.transaction_status:
            raise ended_by_hand()
        if connection._num_transactions:  # noqa: SLF001 - nobody else can tell
            raise in_use()  # a block of `tx.transaction()` that somebody is still in
        guest = PsycopgGuest(connection, is_async=True, is_held=True)
        async with connection.lock:
            try:
                yield guest
            finally:
                connection.pgconn.finish()

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
            # It may be closed by now, or its other end.
            with (
                suppress(self._driver.psycopg.Error, OSError),
                socket.socket(fileno=os.dup(connection.fileno())) as line,
            ):
                line.shutdown(socket.SHUT_RDWR)


HOSTS: dict[str, type[AsyncpgHost] | type[PsycopgHost]] = {
    "asyncpg": AsyncpgHost,
    "psycopg": PsycopgHost,
}


@asynccontextmanager
async def within(seconds: float) -> AsyncGenerator[None, None]:
    """A server that neither lets us in nor refuses is not waited for any longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise DriverError(f"no answer within {seconds:g} s", lost=True) from error


def gone() -> DriverError:
    """Nothing of it was committed."""
    text = "it was closed, by the server or by hand, inside ctx.transaction()"
    return DriverError(text, lost=True, unsent=True)


def ended_by_hand() -> WrongTransaction:
    """What was written is committed or gone, without the end of the job."""
    return WrongTransaction(
        "the transaction was ended by hand, or `reset all` took our mark off it: the end "
        "of the job cannot be in it",
        cure="Leave commit and rollback to ctx.transaction(), raise to undo it, and reset "
        "settings by their names.",
    )
