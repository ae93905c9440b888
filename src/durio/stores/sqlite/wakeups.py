"""Doorbells: a commit that made work for somebody rings them, and nobody has to poll.

A worker binds a Unix datagram socket in the private folder; after the commit the writer
sends it one small datagram: `+<lane>` for work, `!` when somebody acted on its jobs. A lost
ring costs one safety poll, never a job. On Linux the socket is reached through
/proc/self/fd/<folder>/, so that the 107 bytes of a socket address never matter.

In memory there is one process only, and a ring is a call into the waiter's loop.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from durio.ports.store import Wake
from durio.stores.sqlite.store_files import Folder

CONTROL = b"!"
PROC = "/proc/self/fd"
DATAGRAM_BYTES_MAX = 512
NOT_WOKEN = Wake(woken=False, lanes=frozenset(), control=False)


class SqliteWakeups(Protocol):
    """The bells of this process's workers, and the way to ring anybody's."""

    def register(self, worker: int) -> bool:
        """Make a worker's bell; False: it cannot be, so it has to poll."""
        ...

    def remove(self, worker: int) -> None:
        """Take a worker's bell down."""
        ...

    def wake(self, worker: int, message: bytes) -> None:
        """Ring, and never wait."""
        ...

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        """Until a ring or the end of the time; None: this worker has no bell here."""
        ...

    def close(self) -> None:
        """Take all bells of this process down, but leave their files to a rescuer."""
        ...

    def forget(self) -> None:
        """In a forked child: the bells are the parent's."""
        ...


def lane_message(lane: str) -> bytes:
    """There is work in this lane."""
    return b"+" + lane.encode()


def wake_from_messages(messages: list[bytes]) -> Wake:
    """What these rings say together."""
    lanes = frozenset(ring[1:].decode() for ring in messages if ring.startswith(b"+"))
    return Wake(woken=True, lanes=lanes, control=CONTROL in messages)


@dataclass(slots=True)
class SqliteWorkerWakeup:
    """A worker's socket; one that is listened to is closed by the listener."""

    socket: socket.socket
    listeners: int = 0
    removed: bool = False

    def close_if_unused(self) -> None:
        """A loop must not watch a closed descriptor: its number is used again."""
        if self.removed and self.listeners == 0:
            self.socket.close()


class SocketWakeups:
    """Bells that other processes can ring."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._registered: dict[int, SqliteWorkerWakeup] = {}
        self._sender: socket.socket | None = None

    def register(self, worker: int) -> bool:
        """Bind the worker's socket."""
        path = self._path(worker)
        wakeup = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            wakeup.setblocking(False)
            # Left over from a worker of that number in a database that is gone.
            self._folder.unlink(wakeup_socket_name(worker))
            wakeup.bind(path)
        except OSError:  # a file system without sockets, or a path too long for them
            wakeup.close()
            return False
        self._registered[worker] = SqliteWorkerWakeup(wakeup)
        return True

    def remove(self, worker: int) -> None:
        """Unlink and close a bell, ours or a dead worker's."""
        wakeup = self._registered.pop(worker, None)
        if wakeup is not None:
            wakeup.removed = True
            self.wake(worker, CONTROL)  # lets a listener go
            wakeup.close_if_unused()
        self._folder.unlink(wakeup_socket_name(worker))

    def wake(self, worker: int, message: bytes) -> None:
        """Send one datagram; a full buffer is full of rings already."""
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        try:
            self._sender.sendto(message, self._path(worker))
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:  # the file is there, its owner is not
                self._folder.unlink(wakeup_socket_name(worker))

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        """Listen on the calling loop for as long as this wait lasts."""
        wakeup = self._registered.get(worker)
        if wakeup is None:
            return None
        rings = drain(wakeup.socket)
        if rings:
            return wake_from_messages(rings)
        wakeup.listeners += 1
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await until_readable(wakeup.socket, ended, timeout_seconds)
        finally:
            rings = drain(wakeup.socket)
            wakeup.listeners -= 1
            wakeup.close_if_unused()
        return wake_from_messages(rings) if rings else NOT_WOKEN

    def close(self) -> None:
        """Close every socket; files of workers that did not leave stay for a rescuer."""
        for worker, wakeup in list(self._registered.items()):
            wakeup.removed = True
            self.wake(worker, CONTROL)
            wakeup.close_if_unused()
        self._registered.clear()
        if self._sender is not None:
            self._sender.close()
        self._sender = None

    def forget(self) -> None:
        """Close the child's copies; the parent listens on."""
        for wakeup in self._registered.values():
            wakeup.socket.close()
        self._registered.clear()
        if self._sender is not None:
            self._sender.close()
        self._sender = None

    def _path(self, worker: int) -> str:
        return socket_address(self._folder, wakeup_socket_name(worker))


def socket_address(folder: Folder, name: str) -> str:
    """Where a socket of the private folder is, however long its path."""
    if Path(PROC).exists():
        return f"{PROC}/{folder.descriptor}/{name}"
    return os.path.join(folder.path, name)  # noqa: PTH118 - a socket address is text


def wakeup_socket_name(worker: int) -> str:
    """The socket of a worker."""
    return f"{worker}.bell"


def drain(wakeup_socket: socket.socket) -> list[bytes]:
    """Every ring that has arrived."""
    rings: list[bytes] = []
    with suppress(OSError):
        while True:
            rings.append(wakeup_socket.recv(DATAGRAM_BYTES_MAX))
    return rings


async def until_readable(
    readable: socket.socket, ended: "asyncio.Future[None]", timeout_seconds: float
) -> None:
    """Until something can be read, the time is over, or somebody settles `ended`."""
    loop, descriptor = asyncio.get_running_loop(), readable.fileno()
    loop.add_reader(descriptor, complete, ended)
    timer = loop.call_later(timeout_seconds, complete, ended)
    try:
        await ended
    finally:
        timer.cancel()
        loop.remove_reader(descriptor)


def complete(future: "asyncio.Future[None]") -> None:
    """Set a future that may have been set or cancelled meanwhile."""
    if not future.done():
        future.set_result(None)


class LocalWakeups:
    """Bells within one process: rings are remembered until the next wait."""

    def __init__(self) -> None:
        self._messages: dict[int, list[bytes]] = {}
        self._waiters: dict[int, list[Callable[[], object]]] = {}

    def register(self, worker: int) -> bool:
        """Remember rings from now on."""
        self._messages[worker] = []
        return True

    def remove(self, worker: int) -> None:
        """Forget the worker and let its waiters go."""
        self._messages.pop(worker, None)
        self._wake_waiters(worker)

    def wake(self, worker: int, message: bytes) -> None:
        """Note the ring and wake whoever waits, each on its own loop."""
        rings = self._messages.get(worker)
        if rings is None:
            return
        if message not in rings:
            rings.append(message)
        self._wake_waiters(worker)

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        """Until a ring, however many loops wait."""
        if worker not in self._messages:
            return None
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # that loop is closed: nobody waits any more
                loop.call_soon_threadsafe(complete, ended)

        waiters = self._waiters.setdefault(worker, [])
        # First listen, then look: a ring in between is seen twice, never missed.
        waiters.append(wake)
        timer = loop.call_later(timeout_seconds, complete, ended)
        try:
            if not self._messages.get(worker):
                await ended
        finally:
            timer.cancel()
            waiters.remove(wake)
        rings = self._messages.get(worker)
        if not rings:
            return NOT_WOKEN
        self._messages[worker] = []
        return wake_from_messages(rings)

    def close(self) -> None:
        """Let every waiter go."""
        for worker in list(self._messages):
            self.remove(worker)

    def forget(self) -> None:
        """Nobody in the child waits."""
        self._messages.clear()
        self._waiters.clear()

    def _wake_waiters(self, worker: int) -> None:
        for wake in list(self._waiters.get(worker, ())):
            wake()


class NoWakeups:
    """Where no bell can hang: everybody looks for changes, or polls."""

    def register(self, worker: int) -> bool:
        """It cannot be."""
        del worker
        return False

    def remove(self, worker: int) -> None:
        """There is none."""

    def wake(self, worker: int, message: bytes) -> None:
        """Its safety poll will find the work."""

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        """There is nothing to listen to."""
        del worker, timeout_seconds

    def close(self) -> None:
        """Nothing to close."""

    def forget(self) -> None:
        """Nothing to forget."""
