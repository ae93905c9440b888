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
from durio.stores.sqlite.folder import Folder

CONTROL = b"!"
PROC = "/proc/self/fd"
DATAGRAM_BYTES_MAX = 512
QUIET = Wake(rung=False, lanes=frozenset(), control=False)


class Bells(Protocol):
    """The bells of this process's workers, and the way to ring anybody's."""

    def hang(self, worker: int) -> bool:
        """Make a worker's bell; False: it cannot be, so it has to poll."""
        ...

    def remove(self, worker: int) -> None:
        """Take a worker's bell down."""
        ...

    def ring(self, worker: int, ring: bytes) -> None:
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


def ring_for(lane: str) -> bytes:
    """There is work in this lane."""
    return b"+" + lane.encode()


def wake_of(rings: list[bytes]) -> Wake:
    """What these rings say together."""
    lanes = frozenset(ring[1:].decode() for ring in rings if ring.startswith(b"+"))
    return Wake(rung=True, lanes=lanes, control=CONTROL in rings)


@dataclass(slots=True)
class HungBell:
    """A worker's socket; one that is listened to is closed by the listener."""

    socket: socket.socket
    listeners: int = 0
    removed: bool = False

    def close_if_unused(self) -> None:
        """A loop must not watch a closed descriptor: its number is used again."""
        if self.removed and self.listeners == 0:
            self.socket.close()


class SocketBells:
    """Bells that other processes can ring."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._hung: dict[int, HungBell] = {}
        self._ringer: socket.socket | None = None

    def hang(self, worker: int) -> bool:
        """Bind the worker's socket."""
        path = self._path(worker)
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bell.setblocking(False)
            # Left over from a worker of that number in a database that is gone.
            self._folder.unlink(bell_name(worker))
            bell.bind(path)
        except OSError:  # a file system without sockets, or a path too long for them
            bell.close()
            return False
        self._hung[worker] = HungBell(bell)
        return True

    def remove(self, worker: int) -> None:
        """Unlink and close a bell, ours or a dead worker's."""
        bell = self._hung.pop(worker, None)
        if bell is not None:
            bell.removed = True
            self.ring(worker, CONTROL)  # lets a listener go
            bell.close_if_unused()
        self._folder.unlink(bell_name(worker))

    def ring(self, worker: int, ring: bytes) -> None:
        """Send one datagram; a full buffer is full of rings already."""
        if self._ringer is None:
            self._ringer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._ringer.setblocking(False)
        try:
            self._ringer.sendto(ring, self._path(worker))
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:  # the file is there, its owner is not
                self._folder.unlink(bell_name(worker))

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        """Listen on the calling loop for as long as this wait lasts."""
        bell = self._hung.get(worker)
        if bell is None:
            return None
        rings = drain(bell.socket)
        if rings:
            return wake_of(rings)
        bell.listeners += 1
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await until_readable(bell.socket, ended, timeout_seconds)
        finally:
            rings = drain(bell.socket)
            bell.listeners -= 1
            bell.close_if_unused()
        return wake_of(rings) if rings else QUIET

    def close(self) -> None:
        """Close every socket; files of workers that did not leave stay for a rescuer."""
        for worker, bell in list(self._hung.items()):
            bell.removed = True
            self.ring(worker, CONTROL)
            bell.close_if_unused()
        self._hung.clear()
        if self._ringer is not None:
            self._ringer.close()
        self._ringer = None

    def forget(self) -> None:
        """Close the child's copies; the parent listens on."""
        for bell in self._hung.values():
            bell.socket.close()
        self._hung.clear()
        if self._ringer is not None:
            self._ringer.close()
        self._ringer = None

    def _path(self, worker: int) -> str:
        return socket_address(self._folder, bell_name(worker))


def socket_address(folder: Folder, name: str) -> str:
    """Where a socket of the private folder is, however long its path."""
    if Path(PROC).exists():
        return f"{PROC}/{folder.descriptor}/{name}"
    return os.path.join(folder.path, name)  # noqa: PTH118 - a socket address is text


def bell_name(worker: int) -> str:
    """The socket of a worker."""
    return f"{worker}.bell"


def drain(bell: socket.socket) -> list[bytes]:
    """Every ring that has arrived."""
    rings: list[bytes] = []
    with suppress(OSError):
        while True:
            rings.append(bell.recv(DATAGRAM_BYTES_MAX))
    return rings


async def until_readable(
    listened: socket.socket, ended: "asyncio.Future[None]", timeout_seconds: float
) -> None:
    """Until something can be read, the time is over, or somebody settles `ended`."""
    loop, descriptor = asyncio.get_running_loop(), listened.fileno()
    loop.add_reader(descriptor, settle, ended)
    timer = loop.call_later(timeout_seconds, settle, ended)
    try:
        await ended
    finally:
        timer.cancel()
        loop.remove_reader(descriptor)


def settle(future: "asyncio.Future[None]") -> None:
    """Set a future that may have been set or cancelled meanwhile."""
    if not future.done():
        future.set_result(None)


class LocalBells:
    """Bells within one process: rings are remembered until the next wait."""

    def __init__(self) -> None:
        self._rings: dict[int, list[bytes]] = {}
        self._waiters: dict[int, list[Callable[[], object]]] = {}

    def hang(self, worker: int) -> bool:
        """Remember rings from now on."""
        self._rings[worker] = []
        return True

    def remove(self, worker: int) -> None:
        """Forget the worker and let its waiters go."""
        self._rings.pop(worker, None)
        self._tell(worker)

    def ring(self, worker: int, ring: bytes) -> None:
        """Note the ring and wake whoever waits, each on its own loop."""
        rings = self._rings.get(worker)
        if rings is None:
            return
        if ring not in rings:
            rings.append(ring)
        self._tell(worker)

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        """Until a ring, however many loops wait."""
        if worker not in self._rings:
            return None
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # that loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, ended)

        waiters = self._waiters.setdefault(worker, [])
        # First listen, then look: a ring in between is seen twice, never missed.
        waiters.append(wake)
        timer = loop.call_later(timeout_seconds, settle, ended)
        try:
            if not self._rings.get(worker):
                await ended
        finally:
            timer.cancel()
            waiters.remove(wake)
        rings = self._rings.get(worker)
        if not rings:
            return QUIET
        self._rings[worker] = []
        return wake_of(rings)

    def close(self) -> None:
        """Let every waiter go."""
        for worker in list(self._rings):
            self.remove(worker)

    def forget(self) -> None:
        """Nobody in the child waits."""
        self._rings.clear()
        self._waiters.clear()

    def _tell(self, worker: int) -> None:
        for wake in list(self._waiters.get(worker, ())):
            wake()


class NoBells:
    """Where no bell can hang: everybody looks for changes, or polls."""

    def hang(self, worker: int) -> bool:
        """It cannot be."""
        del worker
        return False

    def remove(self, worker: int) -> None:
        """There is none."""

    def ring(self, worker: int, ring: bytes) -> None:
        """Its safety poll will find the work."""

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        """There is nothing to listen to."""
        del worker, timeout_seconds

    def close(self) -> None:
        """Nothing to close."""

    def forget(self) -> None:
        """Nothing to forget."""
