"""The least that one step costs on this machine: flush, commit, round trip, event loop.

An awaited enqueue cannot be faster than the commit of one row, nor a wake-up faster than a
commit and a hand-over. `release.py` measures these times in every round, beside the others.
"""

import asyncio
import os
import queue
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg

from durio.host.processes import loop_factory

PAGE_BYTES = 4096
MICROSECONDS = 1e6


def floors(folder: Path, url: str, count: int) -> dict[str, float]:
    """Return medians of `count` steps, in microseconds."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(measure(folder, url, count))


async def measure(folder: Path, url: str, count: int) -> dict[str, float]:
    db = await asyncpg.connect(url)
    await db.execute("create table if not exists floor (text text)")
    ask = await db.prepare("select 1")
    insert = await db.prepare("insert into floor values ($1)")
    try:
        return {
            "flush": await median(count, flushing(folder)),
            "sqlite commit": await median(count, sqlite_commit(folder)),
            "postgresql round trip": await median(count, ask.fetchval),
            "postgresql commit": await median(count, lambda: insert.fetch("x" * 100)),
            "loop turn": await median(count, lambda: asyncio.sleep(0)),
            "hand-over": await measure_hand_over(count),
        }
    finally:
        await db.close()


async def median(count: int, step: Callable[[], Awaitable[object] | None]) -> float:
    taken: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        if (result := step()) is not None:
            await result
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * MICROSECONDS


def flushing(folder: Path) -> Callable[[], None]:
    """Append a page to a file and flush it."""
    file = (folder / "floor").open("ab", buffering=0)

    def step() -> None:
        file.write(b"x" * PAGE_BYTES)
        os.fdatasync(file)

    return step


def sqlite_commit(folder: Path) -> Callable[[], None]:
    """Insert a row of 100 bytes with the settings of the store."""
    db = apsw.Connection(str(folder / "floor.db"))
    for setting in ("journal_mode = wal", "synchronous = full"):
        db.execute(f"pragma {setting}").fetchall()
    db.execute("create table if not exists floor (text)")
    return lambda: db.execute("insert into floor values (?)", ("x" * 100,)).close()


async def measure_hand_over(count: int) -> float:
    """From the event loop to a thread that waits, and back."""
    loop = asyncio.get_running_loop()
    given: queue.SimpleQueue[asyncio.Future[None] | None] = queue.SimpleQueue()

    def answer() -> None:
        while (future := given.get()) is not None:
            loop.call_soon_threadsafe(future.set_result, None)

    def hand_over() -> Awaitable[None]:
        future = loop.create_future()
        given.put(future)
        return future

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        return await median(count, hand_over)
    finally:
        given.put(None)
        await asyncio.to_thread(thread.join)
