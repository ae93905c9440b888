"""Another program's transaction that stays open, and stores that work meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from durio.host.clock import HostClock
from durio.stores.postgres.driver import PostgresLocation
from durio.stores.postgres.store import PostgresStore

PLENTY_SECONDS = 15.0  # for calls that normally take milliseconds
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
    """Yield a connection of the bare driver."""
    connection: Any = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


@asynccontextmanager
async def open_transaction(url: str) -> AsyncIterator[Any]:
    """Yield an open transaction; a call that waits for its end times out."""
    async with connected(url) as stranger, asyncio.timeout(PLENTY_SECONDS):
        await stranger.execute("begin")
        yield stranger
