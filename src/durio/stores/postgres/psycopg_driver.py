"""The adapter for psycopg, the second driver, which uses libpq.

psycopg has no type of its own for an id of 16 bytes, so the casts in a statement's text
mark the parameters that are ids: `$1::uuid`, `$1::uuid[]`. Between calls the event loop
watches the socket, so that notifications arrive without a call.

Our cursors use psycopg's default adapters and plain rows. Adapters and row factories that
the program registers, globally or on a connection, do not affect them. A caller's
connection may have its own.
"""

import asyncio
import re
import select
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Self, cast

import psycopg
from psycopg import conninfo
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader
from psycopg.postgres import register_default_adapters, register_default_types
from psycopg.pq import Format
from psycopg.rows import tuple_row
from psycopg.types import TypesRegistry
from psycopg.types.array import register_all_arrays
from psycopg.types.string import BytesBinaryDumper

from durio.stores.postgres.driver import (
    Connection,
    DriverError,
    NotificationCallback,
    PostgresLocation,
    Row,
    id_parameters,
)

BYTEA_OID, UUID_OID, UUID_LIST_OID = 17, 2950, 2951
# A binary array: dimensions, has nulls, type, size, first index; then size and bytes of
# each item.
LIST_HEAD = struct.Struct("!iiIii")
NO_LIST = struct.pack("!iiI", 0, 0, UUID_OID)
ID_LENGTH, NULL = struct.pack("!i", 16), struct.pack("!i", -1)
STATEMENTS_CACHED = 400
READ_TURNS = 3  # reads the server's last message, then the end of the stream
FLOATS_CAST = re.compile(r"\$(\d+)::float8\[\]")
# For a refused connection libpq gives only the text, not the SQLSTATE.
PHRASES = (
    (re.compile("password authentication failed|no password supplied"), "28P01"),
    (re.compile(r"no pg_hba\.conf entry|role .* does not exist"), "28000"),
    (re.compile("database .* does not exist|no such database"), "3D000"),
    (re.compile("too many clients|connection slots|too many connections"), "53300"),
    (re.compile("starting up|shutting down|recovery mode|not yet accepting"), "57P03"),
    (re.compile("startup parameter"), "08P01"),
)


class Id(bytes):
    """A parameter of type `uuid`."""

    __slots__ = ()


class IdDumper(Dumper):
    format = Format.BINARY
    oid = UUID_OID

    def dump(self, obj: Any) -> Buffer:
        return bytes(obj)


class Ids(tuple[bytes | None, ...]):
    """A parameter of type `uuid[]`."""

    __slots__ = ()


class IdsDumper(Dumper):
    """Writes the server's binary array at once, which is faster than one dumper per id."""

    format = Format.BINARY
    oid = UUID_LIST_OID

    def dump(self, obj: Any) -> Buffer:
        has_null = None in obj
        parts = [LIST_HEAD.pack(1, has_null, UUID_OID, len(obj), 1)]
        for each in obj:
            parts += (NULL,) if each is None else (ID_LENGTH, each)
        return b"".join(parts) if obj else NO_LIST


class IdLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class HexDumper(Dumper):
    """Dumps bytes in a list as hex text.

    libpq escapes bytes for a literal, with two backslashes if the server has
    standard_conforming_strings off. These bytes are never in a literal.
    """

    oid = BYTEA_OID

    def dump(self, obj: Any) -> Buffer:
        return b"\\x" + bytes(obj).hex().encode()


def our_adapters() -> AdaptersMap:
    """Return psycopg's default adapters with ours added."""
    made = AdaptersMap(types=TypesRegistry())
    register_default_types(made.types)
    register_default_adapters(made)
    made.register_dumper(bytes, HexDumper)
    # Registered last: used for single values.
    made.register_dumper(bytes, BytesBinaryDumper)
    made.register_dumper(Id, IdDumper)
    made.register_dumper(Ids, IdsDumper)
    made.register_loader(UUID_OID, IdLoader)
    register_all_arrays(made)  # last: adds arrays of all types above
    return made


ADAPTERS = our_adapters()


class OurCursor(psycopg.RawCursor[Row]):
    """A cursor for psycopg's sync connections."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


class OurAsyncCursor(psycopg.AsyncRawCursor[Row]):
    """A cursor for psycopg's async connections."""

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


class OurHeldCursor(OurAsyncCursor):
    """A cursor for a caller that holds the connection's lock: `execute` does not take it."""

    async def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
        await self._conn.wait(self._execute_gen(query, params, **how))
        return self


class PsycopgConnection:
    def __init__(
        self, connection: "psycopg.AsyncConnection[Any]", *, prepared: bool
    ) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._socket = connection.fileno()
        self._pid = connection.info.backend_pid
        self._prepared = prepared
        self._callbacks: dict[str, NotificationCallback] = {}
        self._inbox = select.poll()
        self._inbox.register(self._socket, select.POLLIN)
        # psycopg itself handles notifications that come with a reply.
        connection.add_notify_handler(self._on_notify)

    @property
    def pid(self) -> int:
        """The server process, as the server reports it."""
        return self._pid

    @property
    def is_closed(self) -> bool:
        return self._connection.closed

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        given = with_typed_parameters(sql, args)

        async def ask() -> Sequence[Row]:
            async with OurAsyncCursor(self._connection) as cursor:
                await cursor.execute(
                    cast("Any", sql), given, prepare=self._prepared, binary=True
                )
                if cursor.description is None:
                    return ()
                return await cursor.fetchall()

        return await self._call(ask)

    async def run(self, sql: str) -> str:
        """Run statements without parameters; return the command tag of the last one."""

        async def ask() -> str:
            async with OurAsyncCursor(self._connection) as cursor:
                await cursor.execute(cast("Any", sql), prepare=False)
                return cursor.statusmessage or ""

        return await self._call(ask)

    async def listen(self, channel: str, callback: NotificationCallback) -> None:
        self._callbacks[channel] = callback
        await self.run(f'listen "{channel}"')

    async def unlisten(self, channel: str) -> None:
        self._callbacks.pop(channel, None)
        await self.run(f'unlisten "{channel}"')

    async def close(self) -> None:
        self.terminate()

    def terminate(self) -> None:
        """Close at once; libpq sends Terminate without waiting."""
        self._stop_watching()
        self._callbacks.clear()
        self._connection.pgconn.finish()

    def abandon(self, *, inherited: bool) -> None:
        """Drop the connection.

        An inherited one stays open, because psycopg never closes it.
        """
        if not inherited:
            self._connection.pgconn.finish()

    # --- one call at a time

    async def _call(self, call: "Callable[[], Any]") -> Any:
        self._stop_watching()
        self._read()
        try:
            return await call()
        except psycopg.Error as error:
            raise driver_error(error, lost=self._connection.closed) from error
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise driver_error(error, lost=True) from error
        finally:
            self._watch()

    def _read(self) -> None:
        """Read pending input before a call, so that nothing is sent on a closed connection."""
        pgconn = self._connection.pgconn
        try:
            for _ in range(READ_TURNS):
                if self._connection.closed or not self._inbox.poll(0):
                    break
                pgconn.consume_input()
                self._deliver()
        except psycopg.Error as error:
            pgconn.finish()
            raise DriverError(str(error).strip(), lost=True, unsent=True) from error
        if self._connection.closed:
            raise DriverError("the connection is closed", lost=True, unsent=True)

    # --- notifications between calls

    def _watch(self) -> None:
        if self._callbacks and not self._connection.closed:
            self._deliver()
            self._loop.add_reader(self._socket, self._readable)

    def _stop_watching(self) -> None:
        if self._callbacks and not self._connection.closed:
            self._loop.remove_reader(self._socket)

    def _readable(self) -> None:
        try:
            self._connection.pgconn.consume_input()
            self._deliver()
            lost = self._connection.closed
        except psycopg.Error:
            lost = True
        if lost:
            self._loop.remove_reader(self._socket)
            self._connection.pgconn.finish()

    def _on_notify(self, notify: psycopg.Notify) -> None:
        callback = self._callbacks.get(notify.channel)
        if callback is not None:
            callback(notify.payload)

    def _deliver(self) -> None:
        """Call the callbacks for the notifications that have arrived."""
        pgconn = self._connection.pgconn
        while (notify := pgconn.notifies()) is not None:
            callback = self._callbacks.get(notify.relname.decode())
            if callback is not None:
                callback(notify.extra.decode())


class PsycopgDriver:
    async def connect(
        self, location: PostgresLocation, settings: Mapping[str, str], *, prepared: bool
    ) -> Connection:
        try:
            given: dict[str, Any] = dict(conninfo.conninfo_to_dict(location.dsn))
            rest = dict(settings)
            name = rest.pop("application_name", "durio")
            options = " ".join(
                f"-c {key}={value.replace(' ', chr(92) + ' ')}"
                for key, value in rest.items()
            )
            given["options"] = f"{given.get('options') or ''} {options}".strip()
            given["application_name"] = name
            given["client_encoding"] = "utf8"  # also if the database has no encoding
            async with asyncio.timeout(location.connect_seconds):
                connection = await psycopg.AsyncConnection.connect(
                    **given, autocommit=True
                )
        except TimeoutError as error:
            text = f"no answer within {location.connect_seconds:g} s"
            raise DriverError(text, lost=True) from error
        except (psycopg.Error, OSError) as error:
            raise driver_error(error, lost=True) from error
        connection.prepare_threshold = 0 if prepared else None
        connection.prepared_max = STATEMENTS_CACHED
        return PsycopgConnection(connection, prepared=prepared)


@lru_cache(STATEMENTS_CACHED)
def floats_in(sql: str) -> frozenset[int]:
    """Return the indexes of parameters that are cast to `float8[]`."""
    return frozenset(int(n) - 1 for n in FLOATS_CAST.findall(sql))


def with_typed_parameters(sql: str, args: Sequence[Any]) -> Sequence[Any]:
    """Return the parameters with ids marked as such, and lists of numbers as floats."""
    ids, floats = id_parameters(sql), floats_in(sql)
    if not ids and not floats:
        return args
    given = list(args)
    for n in floats:
        if given[n] is not None:
            given[n] = [None if each is None else float(each) for each in given[n]]
    for n, is_list in ids:
        if given[n] is not None:
            given[n] = Ids(given[n]) if is_list else Id(given[n])
    return given


def driver_error(error: BaseException, *, lost: bool) -> DriverError:
    """Convert an error of psycopg, libpq or the socket to a DriverError."""
    text = (str(error) or type(error).__name__).strip()
    state = getattr(error, "sqlstate", None) or ""
    detail = ""
    if isinstance(error, psycopg.Error):
        text = error.diag.message_primary or text
        detail = error.diag.message_detail or ""
        if not state and lost:
            state = next((code for hint, code in PHRASES if hint.search(text)), "")
    return DriverError(text, state=state, detail=detail, lost=lost)


driver = PsycopgDriver()
