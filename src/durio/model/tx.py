"""The transactions that a job may join, recognised by type name, so no driver is imported.

`options(tx=...)` takes the caller's open connection or session. This module only recognises
its kind; the store decides whether it can join the transaction and whether it is in the
same database.
"""

from enum import Enum
from typing import Any, Protocol

from durio.model.errors import InvalidOption, WrongTransaction


class StatementRunner(Protocol):
    """A connection or a session of a driver or of SQLAlchemy."""

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Run a statement."""
        ...


class DjangoConnection(Protocol):
    """`django.db.connection`, or one of `django.db.connections`."""

    def __getattr__(self, item: str, /) -> Any:
        """Return an attribute of the calling thread's connection."""
        ...


# A connection or a session with a transaction; see `TxKind`.
Joinable = StatementRunner | DjangoConnection


class TxKind(Enum):
    """The supported connections and sessions, by public name."""

    APSW = "apsw.Connection"
    SQLITE3 = "sqlite3.Connection"
    ASYNCPG = "asyncpg.Connection"
    PSYCOPG = "psycopg.Connection"
    PSYCOPG_ASYNC = "psycopg.AsyncConnection"
    SESSION = "sqlalchemy.orm.Session"
    CONNECTION = "sqlalchemy.Connection"
    ASYNC_SESSION = "sqlalchemy.ext.asyncio.AsyncSession"
    ASYNC_CONNECTION = "sqlalchemy.ext.asyncio.AsyncConnection"
    DJANGO = "django.db.connection"

    @property
    def is_async(self) -> bool:
        return self in ASYNC


ASYNC = frozenset(
    {
        TxKind.ASYNCPG,
        TxKind.PSYCOPG_ASYNC,
        TxKind.ASYNC_SESSION,
        TxKind.ASYNC_CONNECTION,
    }
)
SQLALCHEMY = frozenset(
    {
        TxKind.SESSION,
        TxKind.CONNECTION,
        TxKind.ASYNC_SESSION,
        TxKind.ASYNC_CONNECTION,
    }
)

# Module and name of a class or of one of its bases.
KINDS = {
    "apsw.Connection": TxKind.APSW,
    "sqlite3.Connection": TxKind.SQLITE3,
    "asyncpg.connection.Connection": TxKind.ASYNCPG,
    "asyncpg.pool.PoolConnectionProxy": TxKind.ASYNCPG,
    "psycopg.Connection": TxKind.PSYCOPG,
    "psycopg.AsyncConnection": TxKind.PSYCOPG_ASYNC,
    "sqlalchemy.orm.session.Session": TxKind.SESSION,
    "sqlalchemy.orm.scoping.scoped_session": TxKind.SESSION,
    "sqlalchemy.engine.base.Connection": TxKind.CONNECTION,
    "sqlalchemy.ext.asyncio.session.AsyncSession": TxKind.ASYNC_SESSION,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": TxKind.ASYNC_SESSION,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": TxKind.ASYNC_CONNECTION,
    "django.utils.connection.ConnectionProxy": TxKind.DJANGO,
    "django.db.backends.base.base.BaseDatabaseWrapper": TxKind.DJANGO,
}

# Common wrong types, and what to pass instead.
COMMON_MISTAKES = {
    "asyncpg.pool.Pool": "a connection: async with pool.acquire() as connection",
    "asyncpg.transaction.Transaction": "the connection that it was begun on",
    "psycopg.Cursor": "cursor.connection",
    "psycopg.AsyncCursor": "cursor.connection",
    "psycopg.Transaction": "transaction.connection",
    "psycopg.AsyncTransaction": "transaction.connection",
    "psycopg_pool.pool.ConnectionPool": "a connection: with pool.connection() as it",
    "sqlite3.Cursor": "cursor.connection",
    "apsw.Cursor": "cursor.connection",
    "aiosqlite.core.Connection": "an AsyncSession on sqlite+aiosqlite",
    "psycopg2.extensions.connection": "a connection of psycopg 3",
    "sqlalchemy.engine.base.Engine": "a connection: with engine.begin() as it",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": (
        "a connection: async with engine.begin() as it"
    ),
    "sqlalchemy.engine.base.Transaction": "transaction.connection",
    "sqlalchemy.orm.session.sessionmaker": "a session: with maker.begin() as it",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker": (
        "a session: async with maker.begin() as it"
    ),
    "sqlalchemy.orm.session.SessionTransaction": "its session",
}


def tx_kind(tx: object) -> TxKind:
    """Return the kind of this transaction; refuse anything else."""
    names = [f"{cls.__module__}.{cls.__qualname__}" for cls in type(tx).__mro__]
    for name in names:
        if name in KINDS:
            return KINDS[name]
    meant = next(
        (COMMON_MISTAKES[name] for name in names if name in COMMON_MISTAKES), None
    )
    known = ", ".join(kind.value for kind in TxKind)
    raise InvalidOption(
        f"tx cannot be a {names[0]}",
        cure=f"Give {meant}." if meant else f"Give one of {known}.",
    )


def check_tx(tx: object) -> None:
    """Refuse an unknown transaction; None means that the job is stored by itself."""
    if tx is not None:
        tx_kind(tx)


def without_django(tx: Any) -> Any:
    """Return the driver's connection of a Django connection; other values unchanged."""
    if tx_kind(tx) is not TxKind.DJANGO:
        return tx
    if tx.connection is None or not (tx.in_atomic_block or not tx.autocommit):
        raise WrongTransaction(
            "Django's connection has no open transaction in this thread",
            cure="Enqueue inside `with transaction.atomic():`, or leave tx out.",
        )
    tx.validate_thread_sharing()
    return tx.connection
