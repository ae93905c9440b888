"""Rules for a caller's open transaction that every store applies."""

from collections.abc import Callable
from typing import Any

from durio.model.errors import WrongTransaction


def connection_closed_error() -> WrongTransaction:
    return WrongTransaction(
        "tx is a connection that is closed", cure="Give one that is open."
    )


def not_in_transaction(how: str) -> WrongTransaction:
    return WrongTransaction(
        "tx has no open transaction: the job would be stored at once",
        cure=f"Begin one: {how}. Or leave tx out.",
    )


def session_of(tx: Any) -> Any:
    """Return SQLAlchemy's session; a scoped one is called to get it."""
    is_scoped = type(tx).__name__ in ("scoped_session", "async_scoped_session")
    return tx() if is_scoped else tx


def begin_in_sqlalchemy(connection: Any, if_over: Callable[[], Exception]) -> None:
    """Begin as SQLAlchemy does before the first statement.

    A transaction that has ended is refused.
    """
    if connection is None or connection.closed or connection.invalidated:
        raise connection_closed_error()
    transaction = connection.get_transaction()
    if transaction is None:
        connection.begin()
    elif not transaction.is_active:
        raise if_over()
