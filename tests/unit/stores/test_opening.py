"""Several callers open a store at once, and some of them give up."""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from durio.model.errors import StoreUnavailable
from durio.model.job import READY
from durio.stores.sqlite.store import SqliteStore
from tests.unit.stores.sqlite_harness import CLOCK, INFO, new_job, run_on_store

pytestmark = pytest.mark.slow  # real processes, servers or seconds

DESCRIPTORS = Path("/proc/self/fd")
Opening = Callable[[SqliteStore, asyncio.TaskGroup], Coroutine[Any, Any, None]]


@contextmanager
def locked(path: Path) -> Generator[None]:
    """As a process does that was stopped: a store that is new cannot be made."""
    folder = Path(f"{path}-durio")
    folder.mkdir(mode=0o700)
    with (folder / "writer.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def descriptors_below(folder: Path) -> list[str]:
    """Which files in a folder this process has open."""
    found = [os.path.realpath(each) for each in DESCRIPTORS.iterdir()]
    return [path for path in found if path.startswith(str(folder))]


def sidecar_names(path: Path) -> list[str]:
    """The files that belong to a database."""
    return [file.name for file in Path(f"{path}-durio").iterdir()]


def play(path: Path, opening: Opening) -> None:
    """Run a story of a store that nobody has opened yet."""

    async def whole() -> None:
        store = SqliteStore(str(path), CLOCK)
        async with asyncio.TaskGroup() as group:
            await opening(store, group)
        await store.close()

    asyncio.run(whole())


async def is_stalled(store: SqliteStore) -> bool:
    return (await store.health()).stalled_by is not None


async def until_stalled(store: SqliteStore) -> None:
    async with asyncio.timeout(20):
        while not await is_stalled(store):
            await CLOCK.sleep(0.01)


async def given_up(store: SqliteStore, group: asyncio.TaskGroup) -> None:
    """Open it behind a lock, and be cancelled there."""
    opener = group.create_task(store.open())
    await until_stalled(store)
    opener.cancel()
    await asyncio.wait([opener])
    assert opener.cancelled()


def test_an_opener_that_is_cancelled_takes_the_store_from_nobody(
    tmp_path: Path,
) -> None:
    async def story(store: SqliteStore, group: asyncio.TaskGroup) -> None:
        first = group.create_task(store.open())
        second = group.create_task(store.open())
        await CLOCK.sleep(0)  # both wait for the writer
        first.cancel()
        await second
        job = new_job()
        await store.enqueue([job])
        assert await store.states([job.id]) == {job.id: READY}

    play(tmp_path / "jobs.db", story)


def test_an_opener_that_is_cancelled_late_takes_the_store_from_nobody(
    tmp_path: Path,
) -> None:
    async def story(store: SqliteStore, group: asyncio.TaskGroup) -> None:
        async def first() -> None:
            await store.open()
            second.cancel()

        opened = group.create_task(first())
        second = group.create_task(store.open())
        await asyncio.wait([opened, second])
        assert second.cancelled()
        await store.enqueue([new_job()])

    play(tmp_path / "jobs.db", story)


def test_an_opener_behind_a_lock_waits_on_when_another_is_cancelled(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"

    async def story(store: SqliteStore, group: asyncio.TaskGroup) -> None:
        with locked(path):
            second = group.create_task(store.open())
            await given_up(store, group)
            assert not second.done()
            assert await is_stalled(store)
        await second
        await store.enqueue([new_job()])

    play(path, story)


def test_a_store_may_be_opened_while_an_opening_that_was_given_up_is_cleared_away(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"

    async def story(store: SqliteStore, group: asyncio.TaskGroup) -> None:
        with locked(path):
            first = group.create_task(store.open())
            await until_stalled(store)
            first.cancel()
            while await is_stalled(store):  # until it has closed what it had opened
                await CLOCK.sleep(0.01)
            second = group.create_task(store.open())
            await asyncio.wait([first])
        await second
        worker = await store.register(INFO, 30)
        assert f"{worker}.life" in sidecar_names(path)

    play(path, story)


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="nobody tells what is open")
def test_an_opening_that_was_given_up_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def story(store: SqliteStore, group: asyncio.TaskGroup) -> None:
        with locked(path):
            for _ in range(2):
                await given_up(store, group)
        async with asyncio.timeout(20):
            while descriptors_below(tmp_path):
                await CLOCK.sleep(0.01)

    play(path, story)
    # It is nobody's again, so another library that has it open is seen.
    stranger = sqlite3.connect(path)
    stranger.execute("select 1 from job").fetchall()
    try:
        with pytest.raises(StoreUnavailable, match="through another library"):
            run_on_store(path, nothing)
    finally:
        stranger.close()
    run_on_store(path, nothing)


async def nothing(store: SqliteStore) -> None:
    del store
