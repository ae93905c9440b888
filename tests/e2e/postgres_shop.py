"""A shop on a server: an App, and a table of the user's own, for tests of transactions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from durio import App
from durio.errors import JobDead
from tests.e2e.caller_transactions import MADE
from tests.servers.postgres import PASSWORD, PostgresServer

DEAD_SECONDS = 20

Story = Callable[[App], Awaitable[None]]


def make_table(server: PostgresServer) -> None:
    """Create the user's own table."""
    with psycopg.connect(plain(server), autocommit=True) as connection:
        connection.execute(MADE)


def plain(server: PostgresServer, scheme: str = "postgresql") -> str:
    """Return the URL for a plain client with another driver."""
    url = server.url(password=PASSWORD)
    return urlunsplit(urlsplit(url)._replace(scheme=scheme))


@asynccontextmanager
async def opened(server: PostgresServer, **options: str) -> AsyncIterator[Any]:
    """Yield an App on an empty schema, with one task."""
    with psycopg.connect(plain(server), autocommit=True) as connection:
        tables = "job, ready, sched, run, hist, kept, uniq, worker"
        names = ", ".join(f"durio.{name}" for name in tables.split(", "))
        connection.execute(f"truncate mine, {names}")
    async with App(server.url(**options), name="shop") as app:
        yield app


def adding(app: App) -> Any:
    @app.task(name="add")
    async def add(value: int) -> int:
        return value

    return add


async def waiting_queues(app: App) -> Mapping[Any, Any]:
    """Return the queues of calls that wait for a lock, in this event loop."""
    return (await app._loop_state()).enqueuer._batcher._waiting_list.queues


def counts(server: PostgresServer) -> tuple[int, int]:
    """Return the numbers of the user's rows and of jobs, as another connection sees them."""
    with psycopg.connect(plain(server)) as connection:
        sql = "select (select count(*) from mine), (select count(*) from durio.job)"
        return connection.execute(sql).fetchone()  # type: ignore[return-value]


def run_story(server: PostgresServer, story: Story, **options: str) -> None:
    """Run a test with an App on an empty schema."""

    async def whole() -> None:
        async with opened(server, **options) as app:
            await story(app)

    asyncio.run(whole())


async def why_dead(app: App, task: Any) -> str:
    """Return why a job of this task is dead."""
    async with app.worker():
        with pytest.raises(JobDead) as dead:
            await (await task.enqueue()).result(timeout=DEAD_SECONDS)
    return f"{dead.value.error.type}: {dead.value.error.message}"
