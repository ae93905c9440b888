"""A stranger's transaction that stays open, and stores that work beside it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from durio.host.clock import HostClock
from durio.stores.postgres.driver import PostgresLocation
from durio.stores.postgres.store import PostgresStore

PLENTY_SECONDS = 15.0  # for what takes milliseconds
clock = HostClock()


@asynccontextmanager
async def opened(location: PostgresLocation) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(location, clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """By hand, without a store."""
    connection: Any = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


@asynccontextmanager
async def open_transaction(url: str) -> AsyncIterator[Any]:
    """It has begun; who would wait for its end in here is told that time is over."""
    async with connected(url) as stranger, asyncio.timeout(PLENTY_SECONDS):
        await stranger.execute("begin")
        yield stranger
