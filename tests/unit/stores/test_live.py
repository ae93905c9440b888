"""Live events between real processes: heard while they live, forgotten when they die."""

import asyncio
import errno
import socket
from pathlib import Path

import pytest

from durio.stores.event_buffer import EVENTS_MAX
from durio.stores.sqlite.live_events import (
    SUBSCRIBERS_MAX,
    LocalLiveEvents,
    SocketLiveEvents,
    datagrams_of,
)
from durio.stores.sqlite.store import SqliteStore
from tests.conformance import ManualClock
from tests.unit.stores.sqlite_harness import CLOCK, lines_of, run_on_store, start

EVENT = b'{"event":"job.done"}'

LISTEN = """
async def story(store):
    async with store.subscribe() as listener:
        print("listening", flush=True)
        heard = []
        while b'{"event":"end"}' not in heard:
            heard += await listener.read(30.0)
        print(len(heard), heard[0].decode(), flush=True)

run_on_store(Path(sys.argv[1]), story)
"""


async def received_by(store: SqliteStore, *, wanted: bool) -> None:
    """Wait until the store knows whether anybody listens."""
    async with asyncio.timeout(30):
        while store.publish([]) is not wanted:
            await CLOCK.sleep(0.05)


def listener_files(path: Path) -> list[str]:
    return [p.name for p in Path(f"{path}-durio").iterdir() if p.suffix == ".ear"]


def test_another_process_hears(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def story(store: SqliteStore) -> None:
        assert not store.publish([])
        listeners = [start(LISTEN, path) for _ in range(2)]
        for listener in listeners:
            assert listener.stdout is not None
            assert listener.stdout.readline() == "listening\n"
        await received_by(store, wanted=True)
        store.publish([EVENT, EVENT])
        store.publish([b'{"event":"end"}'])
        for listener in listeners:
            assert lines_of(listener) == ['3 {"event":"job.done"}']
        await received_by(store, wanted=False)
        assert listener_files(path) == []

    run_on_store(path, story)


def test_the_ear_of_a_process_that_was_killed_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def story(store: SqliteStore) -> None:
        listener = start(LISTEN, path)
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        listener.kill()
        listener.communicate()
        assert len(listener_files(path)) == 1
        await received_by(store, wanted=True)
        store.publish([EVENT])
        assert listener_files(path) == []
        assert not store.publish([])

    run_on_store(path, story)


FORK = """
import os

async def story(store):
    async with store.subscribe() as listener:
        child = os.fork()
        if child == 0:
            mine = len(store.context.live_events._own)
            store.publish([b"1"])
            os._exit(mine)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        store.publish([b"2"])
        heard = []
        while len(heard) < 2:
            heard += await listener.read(30.0)
        print(b" ".join(heard).decode(), flush=True)

run_on_store(Path(sys.argv[1]), story)
"""


def test_a_forked_child_tells_but_has_no_ear(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    assert lines_of(start(FORK, path)) == ["1 2"]
    assert listener_files(path) == []


@pytest.mark.parametrize("name", ["file", "memory"])
def test_a_closed_store_says_nothing_and_hears_nothing(
    tmp_path: Path, name: str
) -> None:
    async def main() -> None:
        store = SqliteStore(str(tmp_path / "a") if name == "file" else None, CLOCK)
        store.publish([EVENT])
        assert not store.publish([])
        await store.open()
        async with store.subscribe() as listener:
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                reading = group.create_task(listener.read(30.0))
                await asyncio.wait([reading], timeout=0)
                await store.close()
            assert reading.result() == []
            assert await listener.read(0.0) == []
        store.publish([EVENT])
        assert not store.publish([])

    asyncio.run(main())


def test_no_descriptor_for_a_socket_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events are missed, and counted for the day when there is one again."""
    clock = ManualClock()

    async def main() -> None:
        store = SqliteStore(str(tmp_path / "jobs.db"), clock)
        await store.open()
        async with store.subscribe() as listener:

            def refuse(ears: SocketLiveEvents) -> socket.socket:
                del ears
                raise OSError(errno.EMFILE, "Too many open files")

            with monkeypatch.context() as patch:
                patch.setattr(SocketLiveEvents, "_sending_socket", refuse)
                store.publish([EVENT] * 3)
                store.publish([EVENT] * 2)
            store.publish([EVENT])
            heard = await listener.read(10.0)
            assert heard == [b'{"event":"live.missed","events":5}', EVENT]
        await store.close()

    asyncio.run(main())


def test_ears_are_bounded(tmp_path: Path) -> None:
    """Whoever comes too late hears nothing; nobody is disturbed."""
    clock = ManualClock()

    async def main() -> None:
        store = SqliteStore(str(tmp_path / "jobs.db"), clock)
        await store.open()
        ears = [
            store.context.live_events.subscribe() for _ in range(SUBSCRIBERS_MAX + 3)
        ]
        store.publish([EVENT])
        heard = [await ear.read(0.0) for ear in ears]
        assert sum(one == [EVENT] for one in heard) == SUBSCRIBERS_MAX
        await store.close()
        assert listener_files(tmp_path / "jobs.db") == []

    asyncio.run(main())


def test_a_line_in_memory_is_bounded() -> None:
    async def main() -> None:
        ears = LocalLiveEvents()
        ear = ears.subscribe()
        for _ in range(3):
            ears.publish([EVENT] * EVENTS_MAX)
        heard = await ear.read(0.0)
        assert len(heard) == EVENTS_MAX + 1
        assert heard[-1] == b'{"event":"live.missed","events":%d}' % (2 * EVENTS_MAX)

    asyncio.run(main())


def test_datagrams_hold_as_much_as_fits() -> None:
    events = [b"x" * 1000] * 100
    datagrams = datagrams_of(events, missed_count=7)
    assert max(len(datagram) for datagram, _ in datagrams) <= 32 * 1024
    assert len(datagrams) == 4
    assert sum(size for _, size in datagrams) == 107
    lines = b"\n".join(datagram for datagram, _ in datagrams).split(b"\n")
    assert lines[0] == b'{"event":"live.missed","events":7}'
    assert lines[1:] == events
