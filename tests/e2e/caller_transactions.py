"""Every kind of transaction that a job can join, with one interface: begin, write, end.

A host has the user's own table `mine` beside the jobs. `begin` returns the connection or
session for `options(tx=...)`; `write` inserts a row of the user's through it.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import apsw
import asyncpg
import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

MADE = "create table if not exists mine (n integer)"
WRITE = "insert into mine values (1)"


class Undo(Exception):
    """Raised to roll a transaction back."""


# --- SQLite


@asynccontextmanager
async def apsw_connection(path: str) -> AsyncIterator[Any]:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(5000)
    try:
        with connection:
            connection.execute(WRITE)
            yield connection
    finally:
        connection.close()


@asynccontextmanager
async def sqlite3_connection(path: str) -> AsyncIterator[Any]:
    connection = sqlite3.connect(path)
    try:
        with connection:
            connection.execute(WRITE)
            yield connection
    finally:
        connection.close()


# --- SQLAlchemy, with any driver


@asynccontextmanager
async def core_connection(url: str) -> AsyncIterator[Any]:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text(WRITE))
            yield connection
    finally:
        engine.dispose()


@asynccontextmanager
async def session(url: str) -> AsyncIterator[Any]:
    engine = create_engine(url)
    try:
        with Session(engine) as it, it.begin():
            it.execute(text(WRITE))
            yield it
    finally:
        engine.dispose()


@asynccontextmanager
async def scoped(url: str) -> AsyncIterator[Any]:
    engine = create_engine(url)
    it = scoped_session(sessionmaker(engine))
    try:
        with it.begin():
            it.execute(text(WRITE))
            yield it
    finally:
        it.remove()
        engine.dispose()


@asynccontextmanager
async def async_connection(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text(WRITE))
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def async_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(url)
    try:
        async with AsyncSession(engine) as it, it.begin():
            await it.execute(text(WRITE))
            yield it
    finally:
        await engine.dispose()


Opens = Callable[[str], Any]
SQLITE: dict[str, tuple[str, Opens, str]] = {
    # name: driver of the store, how to open, prefix of the URL
    "apsw": ("apsw", apsw_connection, ""),
    "sqlite3": ("stdlib", sqlite3_connection, ""),
    "sqlalchemy.Connection": ("stdlib", core_connection, "sqlite:///"),
    "sqlalchemy.Session": ("stdlib", session, "sqlite:///"),
    "sqlalchemy.scoped_session": ("stdlib", scoped, "sqlite:///"),
    "sqlalchemy.AsyncConnection": (
        "stdlib",
        async_connection,
        "sqlite+aiosqlite:///",
    ),
    "sqlalchemy.AsyncSession": ("stdlib", async_session, "sqlite+aiosqlite:///"),
}


# --- PostgreSQL


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(WRITE)
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        await connection.execute(WRITE)
        yield connection


@asynccontextmanager
async def psycopg_connection(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url) as connection:
        connection.execute(WRITE)
        yield connection


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(WRITE)
        yield connection


@asynccontextmanager
async def psycopg_block(url: str) -> AsyncIterator[Any]:
    """Yield a connection in autocommit mode, with a transaction of its own."""
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
        connection.transaction(),
    ):
        await connection.execute(WRITE)
        yield connection


POSTGRES: dict[str, tuple[Opens, str]] = {
    # name: how to open, scheme of the URL
    "asyncpg": (asyncpg_connection, "postgresql"),
    "asyncpg.pool": (asyncpg_pool, "postgresql"),
    "psycopg": (psycopg_connection, "postgresql"),
    "psycopg.async": (psycopg_async, "postgresql"),
    "psycopg.block": (psycopg_block, "postgresql"),
    "sqlalchemy.Connection": (core_connection, "postgresql+psycopg"),
    "sqlalchemy.Session": (session, "postgresql+psycopg"),
    "sqlalchemy.scoped_session": (scoped, "postgresql+psycopg"),
    "sqlalchemy.AsyncConnection": (async_connection, "postgresql+asyncpg"),
    "sqlalchemy.AsyncSession": (async_session, "postgresql+asyncpg"),
    "sqlalchemy.AsyncSession.psycopg": (async_session, "postgresql+psycopg"),
}
