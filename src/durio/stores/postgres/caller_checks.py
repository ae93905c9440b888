"""Check that a caller's connection leads to the store's database and changes no values.

One statement reads the database's identity and some sample values before anything is
written. A mismatch does not break the caller's transaction. The store runs the same
statement on its own connection when it opens, for comparison.
"""

from contextlib import suppress
from typing import Any, Protocol

from durio.model.errors import StoreError, WrongTransaction
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.driver import DriverError, Row
from durio.stores.postgres.statements import statement

READ_IDENTITY = statement("read_identity")
# Parameters of that statement, one value per type. The server returns them unchanged.
SAMPLE_VALUES = (
    "Aa",
    b"\x00\xff\x5c",
    1234567890.123456,
    2,
    70000,
    9007199254740993,
    True,
)
TYPES = ("text", "bytea", "float8", "int2", "int4", "int8", "bool", "uuid")
DATABASE_NAME, DATABASE_ID, MODE, TASK_MARK, SNAPSHOT, FIRST_SAMPLE = range(6)
FIXED_SNAPSHOT = "frozen"  # the transaction sees the store as of its first statement
# Marks a task's own transaction until it ends, and names the task: see task_connection.py.
SET_TASK_MARK = "set local durio.block = 'on'; set local application_name = '{name}'"
TASK_MARKED = "on"

NO_SCHEMA = frozenset({"3F000", "42P01"})
# SQLSTATE classes of errors when a codec of the caller fails; empty: no SQLSTATE.
CODEC_FAILED = ("", "22")


class RowReader(Protocol):
    """Runs one statement; raises DriverError, not translated."""

    async def rows(self, sql: str, *args: Any) -> Any: ...


async def check_caller_connection(
    context: PostgresContext, connection: RowReader, *, may_wait: bool = True
) -> Row:
    """Refuse a connection to another database, or one that changes our values.

    The schema may have been created again since the store was opened. So after a mismatch
    the store reads its own identity once more. Without `may_wait` it does that in the
    background: this call is refused, but the next one succeeds.
    """
    theirs = await read_caller_identity(context, connection)
    if not is_same_database(context, theirs):
        if may_wait:
            await refresh_identity(context)
        else:
            context.connections.run_soon(lambda: refresh_identity(context))
    where: Row = context.process.database_identity or ()
    for name, mine, value in zip(
        TYPES, where[FIRST_SAMPLE:], theirs[FIRST_SAMPLE:], strict=True
    ):
        if type(value) is not type(mine) or value != mine:
            made = "something else" if value is None else repr(value)
            raise wrong_codecs(f"of the {name} {mine!r} it makes {made}")
    if not is_same_database(context, theirs):
        raise wrong_database(context, repr(theirs[DATABASE_NAME]))
    if theirs[MODE] == "replica":
        raise wrong_database(context, "a replica, which takes no writes")
    if theirs[MODE] == "read only":
        raise read_only_error()
    return theirs


def is_same_database(context: PostgresContext, identity: Row) -> bool:
    """Compare with the identity that the store last read on its own connection."""
    where: Row = context.process.database_identity or ()
    return identity[: DATABASE_ID + 1] == where[: DATABASE_ID + 1]


async def refresh_identity(context: PostgresContext) -> None:
    """Read the store's own identity again; keep the old one if that fails."""
    with suppress(StoreError):
        context.process.database_identity = await read_identity(context)


async def read_identity(context: PostgresContext) -> Row:
    """Read the identity on the store's own connection."""
    return tuple((await context.connections.read(READ_IDENTITY, *SAMPLE_VALUES))[0])


async def read_caller_identity(context: PostgresContext, connection: RowReader) -> Row:
    """Read the identity on the caller's connection, whose codecs may fail on our values."""
    try:
        return tuple((await connection.rows(READ_IDENTITY, *SAMPLE_VALUES))[0])
    except DriverError as error:
        if error.state in NO_SCHEMA:
            raise wrong_database(context, "one without our tables") from error
        if error.lost or error.state[:2] not in CODEC_FAILED:
            raise
        raise wrong_codecs(error.text) from error
    except WrongTransaction:
        raise
    except Exception as error:
        raise wrong_codecs(f"{type(error).__name__}: {error}") from error


def wrong_database(context: PostgresContext, which: str) -> WrongTransaction:
    """Return the error for another database: no worker of this store would see its jobs."""
    return WrongTransaction(
        f"tx is a connection to another database ({which}) than the store's: "
        f"{context.location.shown}",
        cure="Give a connection to the store's own database, or leave tx out.",
    )


def wrong_codecs(how: str) -> WrongTransaction:
    """Return the error for a connection that would change values of the store."""
    return WrongTransaction(
        f"tx has codecs or an encoding of its own for values that a job is made of: {how}",
        cure="Give a connection without codecs for text, bytea, bool, float8 and integers, "
        "and with client_encoding UTF8. Codecs for json and numeric are fine, and "
        "one for uuid that returns a UUID or its text.",
    )


def read_only_error() -> WrongTransaction:
    """Return the error for a READ ONLY transaction, set for this one or by default."""
    return WrongTransaction(
        "the transaction of tx is read-only: nothing can be written in it",
        cure="Begin one that may write: not READ ONLY, and without "
        "default_transaction_read_only.",
    )
