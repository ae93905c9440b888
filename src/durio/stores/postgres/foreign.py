"""A caller's own connection as a place where statements run: its guests.

What the caller has taught the connection is the caller's business. Our cursors of psycopg
do not even see it. asyncpg has nothing of the kind: there ids travel as text, and come
back as whatever the caller likes ids to be; of anything else same.py makes sure. Nothing
is committed here, and nothing is set for longer than a transaction.
"""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

from durio.model.errors import WrongTransaction
from durio.model.tx import TxKind
from durio.stores.postgres.driver import ID_CAST, DriverError, Row, ids_in

ID = "id"  # columns of this name are ids, and no others
IDLE, FAILED = 0, 3  # of libpq, which psycopg hands on
GIVEN_UP = "57014"
BUSY = ("another operation is in progress", "another command is already in progress")

ASYNCPG = "durio.stores.postgres.asyncpg_driver"
PSYCOPG = "durio.stores.postgres.psycopg_driver"


class Guest(Protocol):
    """A connection in a transaction that is not ours to end."""

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows."""
        ...

    async def run(self, sql: str) -> str:
        """Statements without parameters and without answers; what one alone did."""
        ...


class AsyncpgGuest:
    """In a connection of asyncpg, or of its pool."""

    def __init__(self, connection: Any) -> None:
        self._host = connection
        self._driver: Any = import_module(ASYNCPG)
        try:
            if connection.is_closed():
                raise closed()
            is_begun = connection.is_in_transaction()
        except self._driver.FAILURES:  # it went back to its pool
            raise closed() from None
        # Nobody there would ever wake us, and its owner could not use it any more.
        loop = getattr(connection, "_loop", None)
        if loop not in (None, asyncio.get_running_loop()):
            raise of_other_loop()
        if not is_begun:
            raise not_begun("async with connection.transaction(): ...")

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows."""
        try:
            rows = await self._host.fetch(
                texts(sql),
                *ids_as_text(sql, args),
                record_class=self._driver.asyncpg.Record,  # it may have one of its own
            )
        except self._driver.FAILURES as error:
            raise self._told(error) from error
        return [ours(row) for row in rows]

    async def run(self, sql: str) -> str:
        """Statements without parameters and without answers."""
        try:
            return await self._host.execute(sql)
        except self._driver.FAILURES as error:
            raise self._told(error) from error

    def _told(self, error: BaseException) -> Exception:
        if isinstance(error, TimeoutError):
            return DriverError("the command_timeout of tx has passed", state=GIVEN_UP)
        return of_use(self._driver.told(error, lost=self._host.is_closed()))


class PsycopgGuest:
    """In a connection of psycopg; one without an event loop never waits for one.

    `is_held`: whoever asks takes the connection's lock before.
    """

    def __init__(
        self, connection: Any, *, is_async: bool, is_held: bool = False
    ) -> None:
        self._host = connection
        self._is_async = is_async
        self._is_held = is_held
        self._driver: Any = import_module(PSYCOPG)
        if connection.closed:
            raise closed()
        if connection.pgconn.pipeline_status:
            raise in_pipeline()
        if connection.lock.locked():  # a COPY keeps it: we would wait for ourselves
            raise in_use()
        status = connection.info.transaction_status
        if status == FAILED:
            raise failed()
        if status == IDLE and connection.autocommit:
            raise not_begun("with connection.transaction(): ..., or autocommit=False")

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows."""
        rows, _ = await self._ask(sql, self._driver.with_ids(sql, args))
        return rows

    async def run(self, sql: str) -> str:
        """Statements without parameters and without answers."""
        _, done = await self._ask(sql, None)
        return done

    async def _ask(
        self, sql: str, args: Sequence[Any] | None
    ) -> tuple[Sequence[Row], str]:
        driver = self._driver
        # Several statements at once have no binary answers, nor any other here.
        binary = args is not None
        try:
            if self._is_async:
                kind = driver.OurHeldCursor if self._is_held else driver.OurAsyncCursor
                async with kind(self._host) as cursor:
                    await cursor.execute(sql, args, binary=binary)
                    rows = await cursor.fetchall() if cursor.description else ()
                    return rows, cursor.statusmessage or ""
            with driver.OurCursor(self._host) as cursor:
                cursor.execute(sql, args, binary=binary)
                rows = cursor.fetchall() if cursor.description else ()
                return rows, cursor.statusmessage or ""
        except (driver.psycopg.Error, OSError) as error:
            raise of_use(driver.told(error, lost=self._host.closed)) from error


def of_use(told: DriverError) -> Exception:
    """What the caller did wrong, where it is that."""
    is_busy = not told.state and any(word in told.text for word in BUSY)
    return in_use() if is_busy else told


# --- ids


@lru_cache(maxsize=1000)
def texts(sql: str) -> str:
    """The statement with ids as text."""
    return ID_CAST.sub(lambda m: f"${m[1]}::text{m[2] or ''}::uuid{m[2] or ''}", sql)


def ids_as_text(sql: str, args: Sequence[Any]) -> Sequence[Any]:
    """The parameters of such a statement."""
    given = list(args)
    for place, is_list in ids_in(sql):
        value = given[place]
        if value is not None:
            given[place] = list(map(id_text, value)) if is_list else id_text(value)
    return given


def id_text(value: bytes | None) -> str | None:
    """One id as PostgreSQL writes it."""
    return None if value is None else str(UUID(bytes=value))


def ours(row: Any) -> Row:
    """A row of asyncpg with ids as 16 bytes, whatever its owner makes of them."""
    named = zip(row.keys(), row.values(), strict=True)
    return tuple(id_bytes(value) if name == ID else value for name, value in named)


def id_bytes(value: Any) -> Any:
    """An id from a UUID, its text or its bytes; anything else is left as it is."""
    if value is None or isinstance(value, bytes):
        return value
    try:
        return value.bytes if isinstance(value, UUID) else UUID(str(value)).bytes
    except ValueError:
        return value


# --- hosts


def guest_of(connection: Any, kind: TxKind) -> Guest:
    """A guest in a connection of one of the two drivers."""
    if kind is TxKind.ASYNCPG:
        return AsyncpgGuest(connection)
    if kind in (TxKind.PSYCOPG, TxKind.PSYCOPG_ASYNC):
        return PsycopgGuest(connection, is_async=kind.is_async)
    raise WrongTransaction(
        f"tx is a {kind.value}, but the store is PostgreSQL",
        cure="Give a connection to the store's own database, or leave tx out.",
    )


def closed() -> WrongTransaction:
    """Nothing can be written there."""
    return WrongTransaction(
        "tx is a connection that is closed", cure="Give one that is open."
    )


def not_begun(how: str) -> WrongTransaction:
    """Outside of a transaction the job would be stored at once."""
    return WrongTransaction(
        "tx has no open transaction: the job would be stored at once",
        cure=f"Begin one: {how}. Or leave tx out.",
    )


def failed() -> WrongTransaction:
    """PostgreSQL takes nothing more in it."""
    return WrongTransaction(
        "the transaction of tx has failed already", cure="Roll it back first."
    )


def in_pipeline() -> WrongTransaction:
    """Its answers come when the caller asks for them, and we need ours."""
    return WrongTransaction(
        "tx is in pipeline mode, where nothing is answered at once",
        cure="Enqueue before `with connection.pipeline()`, or after it.",
    )


def in_use() -> WrongTransaction:
    """A connection does one thing at a time."""
    return WrongTransaction(
        "tx is in use by another task, or in the middle of a COPY or of a stream",
        cure="Do one thing after the other on it, without gather() and create_task().",
    )


def of_other_loop() -> WrongTransaction:
    """A connection with an event loop is of no use on another."""
    return WrongTransaction(
        "tx belongs to another event loop than the one that enqueues",
        cure="Enqueue where the connection was opened, or give one without a loop.",
    )
