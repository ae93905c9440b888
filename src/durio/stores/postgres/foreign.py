"""A caller's own connection as a place where statements run: its guests.

Whichever driver it is, ids travel as text there: what the caller has taught the connection
about `uuid` is the caller's business. What comes back is what drivers make of it by
themselves. Nothing is committed here, and nothing is set for longer than a transaction.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol
from uuid import UUID

from durio.model.errors import WrongTransaction
from durio.model.tx import TxKind
from durio.stores.postgres.driver import DriverError, Row

ID_CAST = re.compile(r"\$(\d+)::uuid\b(\[\])?")
IDLE, FAILED = 0, 3  # of libpq, which psycopg hands on

ASYNCPG = "durio.stores.postgres.asyncpg_driver"
PSYCOPG = "durio.stores.postgres.psycopg_driver"


class Guest(Protocol):
    """A connection in a transaction that is not ours to end."""

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows."""
        ...

    async def run(self, sql: str) -> None:
        """Statements without parameters and without answers."""
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
        if not is_begun:
            raise not_begun("async with connection.transaction(): ...")

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows."""
        try:
            rows = await self._host.fetch(texts(sql), *ids_as_text(sql, args))
        except self._driver.FAILURES as error:
            raise self._told(error) from error
        return [ours(row) for row in rows]

    async def run(self, sql: str) -> None:
        """Statements without parameters and without answers."""
        try:
            await self._host.execute(sql)
        except self._driver.FAILURES as error:
            raise self._told(error) from error

    def _told(self, error: BaseException) -> DriverError:
        return self._driver.told(error, lost=self._host.is_closed())


class PsycopgGuest:
    """In a connection of psycopg; one without an event loop never waits for one."""

    def __init__(self, connection: Any, *, is_async: bool) -> None:
        self._host = connection
        self._is_async = is_async
        self._driver: Any = import_module(PSYCOPG)
        if connection.closed:
            raise closed()
        status = connection.info.transaction_status
        if status == FAILED:
            raise failed()
        if status == IDLE and connection.autocommit:
            raise not_begun("with connection.transaction(): ..., or autocommit=False")

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows."""
        return await self._ask(texts(sql), ids_as_text(sql, args))

    async def run(self, sql: str) -> None:
        """Statements without parameters and without answers."""
        await self._ask(sql, None)

    async def _ask(self, sql: str, args: Sequence[Any] | None) -> Sequence[Row]:
        psycopg = self._driver.psycopg
        try:
            if self._is_async:
                async with psycopg.AsyncRawCursor(self._host) as cursor:
                    await cursor.execute(sql, args)
                    found = await cursor.fetchall() if cursor.description else ()
            else:
                with psycopg.RawCursor(self._host) as cursor:
                    cursor.execute(sql, args)
                    found = cursor.fetchall() if cursor.description else ()
        except (psycopg.Error, OSError) as error:
            raise self._driver.told(error, lost=self._host.closed) from error
        return [ours(row) for row in found]


# --- ids


@lru_cache(maxsize=1000)
def texts(sql: str) -> str:
    """The statement with ids as text."""
    return ID_CAST.sub(lambda m: f"${m[1]}::text{m[2] or ''}::uuid{m[2] or ''}", sql)


@lru_cache(maxsize=1000)
def ids_in(sql: str) -> tuple[tuple[int, bool], ...]:
    """Which parameters of a statement are ids, from 0, and whether they are lists."""
    found = {int(number) - 1: bool(many) for number, many in ID_CAST.findall(sql)}
    return tuple(found.items())


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
    """A row with ids as 16 bytes."""
    return tuple(value.bytes if isinstance(value, UUID) else value for value in row)


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
