"""The adapter for asyncpg, the faster driver and the default."""

import asyncio
import select
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from durio.stores.postgres.driver import (
    Connection,
    DriverError,
    NotificationCallback,
    PostgresLocation,
    Row,
)

STATEMENTS_CACHED = 400
CLOSE_SECONDS = 2.0
READ_TURNS = 3  # loop iterations until the socket is read and the driver has the data
FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)


class AsyncpgConnection:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._pid: int = connection.get_server_pid()
        self._listeners: dict[str, Any] = {}
        self._inbox = select.poll()
        socket = connection._transport.get_extra_info("socket")  # noqa: SLF001
        self._inbox.register(socket.fileno(), select.POLLIN)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed()

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        try:
            if self._inbox.poll(0):
                await self._read()
            return cast("Sequence[Row]", await self._connection.fetch(sql, *args))
        except FAILURES as error:
            raise self._driver_error(error) from error

    async def _read(self) -> None:
        """Let the loop read the socket, so that a lost connection is noticed first."""
        for _ in range(READ_TURNS):
            await asyncio.sleep(0)  # noqa: TID251 - a turn for the loop, no time passes

    async def run(self, sql: str) -> str:
        if self._inbox.poll(0):
            await self._read()
        async with self._translating():
            return await self._connection.execute(sql)

    async def listen(self, channel: str, callback: NotificationCallback) -> None:

        def on_notification(
            _connection: Any, _pid: int, _channel: str, payload: str
        ) -> None:
            callback(payload)

        async with self._translating():
            await self._connection.add_listener(channel, on_notification)
        self._listeners[channel] = on_notification

    async def unlisten(self, channel: str) -> None:
        listener = self._listeners.pop(channel, None)
        if listener is not None:
            async with self._translating():
                await self._connection.remove_listener(channel, listener)

    async def close(self) -> None:
        """Close the connection; cut it if the server does not answer within CLOSE_SECONDS."""
        self._listeners.clear()
        self._connection._listeners.clear()  # noqa: SLF001
        with suppress(*FAILURES):
            await self._connection.close(timeout=CLOSE_SECONDS)

    def terminate(self) -> None:
        self._listeners.clear()
        self._connection._listeners.clear()  # noqa: SLF001
        self._connection.terminate()

    def abandon(self, *, inherited: bool) -> None:
        """Drop the connection so that not even the garbage collector touches its transport."""
        # asyncio's transports outlive their loop, uvloop's do not.
        transport = self._connection._transport  # noqa: SLF001
        socket = getattr(transport, "_sock", None)
        if not inherited and socket is not None:
            transport._sock = None  # noqa: SLF001
            socket.close()
        self._connection._aborted = True  # noqa: SLF001 - there is no other way

    @asynccontextmanager
    async def _translating(self) -> AsyncGenerator[None, None]:
        try:
            yield
        except FAILURES as error:
            raise self._driver_error(error) from error

    def _driver_error(self, error: BaseException) -> BaseException:
        """Convert an error, except a TimeoutError, which belongs to the caller."""
        if isinstance(error, TimeoutError):
            return error
        return driver_error(error, lost=self._connection.is_closed())


class AsyncpgDriver:
    async def connect(
        self, location: PostgresLocation, settings: Mapping[str, str], *, prepared: bool
    ) -> Connection:
        """Open a connection on which ids are 16 bytes."""
        try:
            connection = await cast("Any", asyncpg).connect(
                location.dsn,
                timeout=location.connect_seconds,
                server_settings=dict(settings),
                statement_cache_size=STATEMENTS_CACHED if prepared else 0,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=0,
            )
        except TimeoutError as error:
            text = f"no answer within {location.connect_seconds:g} s"
            raise DriverError(text, lost=True) from error
        except (*FAILURES, ValueError) as error:
            raise driver_error(error, lost=True) from error
        try:
            await connection.set_type_codec(
                "uuid",
                schema="pg_catalog",
                encoder=bytes,
                decoder=bytes,
                format="binary",
            )
        except BaseException as error:
            connection.terminate()
            if isinstance(error, FAILURES):
                raise driver_error(error, lost=True) from error
            raise
        return AsyncpgConnection(connection)


def driver_error(error: BaseException, *, lost: bool) -> DriverError:
    """Translate an error of asyncpg, of the socket or of name resolution."""
    state = getattr(error, "sqlstate", None) or ""
    severity = getattr(error, "severity", None) or ""
    # asyncpg appends detail and hint to the text; DriverError has a field for the detail.
    text = str(error).partition("\nDETAIL: ")[0] or type(error).__name__
    # The server has closed the connection, and asyncpg has not noticed it yet.
    is_ending = isinstance(error, asyncpg.InternalClientError)
    return DriverError(
        text,
        state=state,
        detail=getattr(error, "detail", None) or "",
        lost=lost
        or is_ending
        or isinstance(error, OSError)
        or severity in ("FATAL", "PANIC"),
        unsent=isinstance(error, asyncpg.InterfaceError)
        or (is_ending and "cannot switch" in text),
    )


driver = AsyncpgDriver()
