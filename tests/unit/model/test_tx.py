"""Which objects a job may join: by the name of their type, with a hint for the others."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy
from sqlalchemy.ext import asyncio as alchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from durio import App
from durio.errors import InvalidOption, WrongTransaction
from durio.model.tx import KINDS, TxKind, check_tx, tx_kind, without_django

REAL = {
    apsw.Connection: TxKind.APSW,
    sqlite3.Connection: TxKind.SQLITE3,
    asyncpg.Connection: TxKind.ASYNCPG,
    asyncpg.pool.PoolConnectionProxy: TxKind.ASYNCPG,
    psycopg.Connection: TxKind.PSYCOPG,
    psycopg.AsyncConnection: TxKind.PSYCOPG_ASYNC,
    Session: TxKind.SESSION,
    scoped_session: TxKind.SESSION,
    sqlalchemy.Connection: TxKind.CONNECTION,
    alchemy.AsyncSession: TxKind.ASYNC_SESSION,
    alchemy.async_scoped_session: TxKind.ASYNC_SESSION,
    alchemy.AsyncConnection: TxKind.ASYNC_CONNECTION,
    ConnectionProxy: TxKind.DJANGO,
    BaseDatabaseWrapper: TxKind.DJANGO,
}


@pytest.mark.parametrize("cls", REAL, ids=lambda cls: cls.__name__)
def test_the_real_types_have_these_names(cls: type[Any]) -> None:
    assert KINDS[f"{cls.__module__}.{cls.__qualname__}"] is REAL[cls]


def test_every_name_is_a_real_type() -> None:
    assert len(REAL) == len(KINDS)


def test_a_subclass_is_of_the_same_kind() -> None:
    class Mine(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(":memory:", factory=Mine)) as connection:
        assert tx_kind(connection) is TxKind.SQLITE3


def test_only_those_of_a_loop_are_async() -> None:
    assert {kind for kind in TxKind if kind.is_async} == {
        TxKind.ASYNCPG,
        TxKind.PSYCOPG_ASYNC,
        TxKind.ASYNC_SESSION,
        TxKind.ASYNC_CONNECTION,
    }


@pytest.mark.parametrize(
    "tx", [42, "session", object(), Path()], ids=lambda tx: type(tx).__name__
)
def test_anything_else_is_refused_with_what_is_taken(tx: object) -> None:
    with pytest.raises(InvalidOption) as told:
        check_tx(tx)
    assert type(tx).__name__ in told.value.what
    assert "sqlalchemy.orm.Session" in told.value.cure


def test_what_is_nearly_right_gets_a_hint() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    connection = sqlite3.connect(":memory:")
    nearly = {
        engine: "with engine.begin()",
        sessionmaker(engine): "with maker.begin()",
        connection.cursor(): "cursor.connection",
        apsw.Connection(":memory:").cursor(): "cursor.connection",
    }
    for tx, hint in nearly.items():
        with pytest.raises(InvalidOption) as told:
            check_tx(tx)
        assert hint in told.value.cure
    connection.close()


def test_none_is_no_transaction() -> None:
    check_tx(None)


def test_it_is_refused_where_it_is_given() -> None:
    app = App("sqlite:///:memory:")

    @app.task(name="work")
    async def work() -> None: ...

    with pytest.raises(InvalidOption, match=r"tx cannot be a builtins\.int"):
        work.options(tx=42)  # type: ignore[arg-type]


class DjangoConnection(BaseDatabaseWrapper):
    """One that was made in this thread and has not connected yet."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.in_atomic_block = False
        self.autocommit = True
        self.is_checked = False

    def validate_thread_sharing(self) -> None:
        self.is_checked = True


def test_a_connection_of_django_needs_an_open_transaction() -> None:
    tx = DjangoConnection()
    with pytest.raises(WrongTransaction, match="no open transaction"):
        without_django(tx)
    tx.connection, tx.in_atomic_block = "the driver's", True
    assert without_django(tx) == "the driver's"
    assert tx.is_checked, "Django refuses a connection of another thread"
    assert without_django(apsw_connection := apsw.Connection("")) is apsw_connection
