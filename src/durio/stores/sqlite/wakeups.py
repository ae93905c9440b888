"""Wakeups: a commit that makes work for workers wakes them, so that they need not poll.

A worker binds a Unix datagram socket in the private folder. After the commit the writer
sends it one small datagram: `+<lane>` for work, `!` if an operator acted on its jobs. A
lost wakeup causes one safety poll; no job is lost. On Linux the socket is addressed through
/proc/self/fd/<folder>/, because a socket address has at most 107 bytes.

In memory there is only one process, and a wakeup is a call into the loop of the waiter.
"""

import asyncio
import errno
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from durio.ports.store import Wake
from durio.stores.sqlite.store_files import Folder
from durio.stores.waiting import (
    CONTROL,
    NOT_WOKEN,
    WorkerWakeup,
    complete,
    wake_from_messages,
)

PROC = "/proc/self/fd"
DATAGRAM_BYTES_MAX = 512


class SqliteWakeups(Protocol):
    """The wakeup sockets of this process's workers, and a way to wake any worker."""

    def register(self, worker: int) -> bool:
        """Create a worker's socket; return False if that fails and the worker polls."""
        ...

    def remove(self, worker: int) -> None: ...

    def wake(self, worker: int, message: str) -> None:
        """Send a wakeup; never waits."""
        ...

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        """Wait for a wakeup or the timeout; None if this worker has no socket here."""
        ...

    def close(self) -> None:
        """Close all sockets of this process; a rescuer removes the files that are left."""
        ...

    def forget(self) -> None:
        """Drop the parent's sockets, in a forked child."""
        ...


@dataclass(slots=True)
class SqliteWorkerWakeup:
    """A worker's socket; while a listener waits on it, the listener closes it."""

    socket: socket.socket
    listeners: int = 0
    removed: bool = False

    def close_if_unused(self) -> None:
        """Close the socket unless a loop watches it: its descriptor would be reused."""
        if self.removed and self.listeners == 0:
            self.socket.close()


class SocketWakeups:
    """Wakeups that other processes can send."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._registered: dict[int, SqliteWorkerWakeup] = {}
        self._sender: socket.socket | None = None

    def register(self, worker: int) -> bool:
        path = self._path(worker)
        wakeup = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            wakeup.setblocking(False)
            # A worker of that number in a deleted database may have left it.
            self._folder.unlink(wakeup_socket_name(worker))
            wakeup.bind(path)
        except OSError:  # the file system has no sockets, or the path is too long
            wakeup.close()
            return False
        self._registered[worker] = SqliteWorkerWakeup(wakeup)
        return True

    def remove(self, worker: int) -> None:
        """Unlink and close a socket, of this process or of a dead worker."""
        wakeup = self._registered.pop(worker, None)
        if wakeup is not None:
            wakeup.removed = True
            self.wake(worker, CONTROL)  # ends the wait of a listener
            wakeup.close_if_unused()
        self._folder.unlink(wakeup_socket_name(worker))

    def wake(self, worker: int, message: str) -> None:
        """Send one datagram; if the buffer is full, it already holds wakeups."""
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        try:
            self._sender.sendto(message.encode(), self._path(worker))
        except OSError as error:
            # The file exists, but its owner is gone.
            if error.errno == errno.ECONNREFUSED:
                self._folder.unlink(wakeup_socket_name(worker))

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        """Wait for a wakeup; the calling loop watches the socket during this call only."""
        wakeup = self._registered.get(worker)
        if wakeup is None:
            return None
        messages = drain(wakeup.socket)
        if messages:
            return wake_from_messages(messages)
        wakeup.listeners += 1
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await until_readable(wakeup.socket, ended, timeout_seconds)
        finally:
            messages = drain(wakeup.socket)
            wakeup.listeners -= 1
            wakeup.close_if_unused()
        return wake_from_messages(messages) if messages else NOT_WOKEN

    def close(self) -> None:
        for worker, wakeup in list(self._registered.items()):
            wakeup.removed = True
            self.wake(worker, CONTROL)
            wakeup.close_if_unused()
        self._forget_all()

    def forget(self) -> None:
        """Close the child's copies; the parent keeps its sockets."""
        for wakeup in self._registered.values():
            wakeup.socket.close()
        self._forget_all()

    def _forget_all(self) -> None:
        self._registered.clear()
        if self._sender is not None:
            self._sender.close()
        self._sender = None

    def _path(self, worker: int) -> str:
        return socket_address(self._folder, wakeup_socket_name(worker))


def socket_address(folder: Folder, name: str) -> str:
    """Return the address of a socket in the private folder, however long its path."""
    if Path(PROC).exists():
        return f"{PROC}/{folder.descriptor}/{name}"
    return os.path.join(folder.path, name)  # noqa: PTH118 - a socket address is text


def wakeup_socket_name(worker: int) -> str:
    return f"{worker}.bell"


def drain(wakeup_socket: socket.socket) -> list[str]:
    """Return every message that has arrived."""
    messages: list[str] = []
    with suppress(OSError):
        while True:
            datagram = wakeup_socket.recv(DATAGRAM_BYTES_MAX)
            messages.append(datagram.decode("utf-8", "replace"))
    return messages


async def until_readable(
    readable: socket.socket, ended: "asyncio.Future[None]", timeout_seconds: float
) -> None:
    """Wait until there is data to read, the timeout, or `ended` is set by another thread."""
    loop, descriptor = asyncio.get_running_loop(), readable.fileno()
    loop.add_reader(descriptor, complete, ended)
    timer = loop.call_later(timeout_seconds, complete, ended)
    try:
        await ended
    finally:
        timer.cancel()
        loop.remove_reader(descriptor)


class LocalWakeups:
    """Wakeups within one process: messages are kept until the next wait."""

    def __init__(self) -> None:
        self._registered: dict[int, WorkerWakeup] = {}

    def register(self, worker: int) -> bool:
        self._registered[worker] = WorkerWakeup()
        return True

    def remove(self, worker: int) -> None:
        """Forget the worker and end its waits."""
        wakeup = self._registered.pop(worker, None)
        if wakeup is not None:
            wakeup.end_waits()

    def wake(self, worker: int, message: str) -> None:
        wakeup = self._registered.get(worker)
        if wakeup is not None:
            wakeup.wake(message)

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        wakeup = self._registered.get(worker)
        if wakeup is None:
            return None
        await wakeup.wait(timeout_seconds)
        return wakeup.take() or NOT_WOKEN

    def close(self) -> None:
        for worker in list(self._registered):
            self.remove(worker)

    def forget(self) -> None:
        self._registered.clear()


class NoWakeups:
    """Used if there is no private folder: workers watch for changes, or poll."""

    def register(self, worker: int) -> bool:
        del worker
        return False

    def remove(self, worker: int) -> None: ...

    def wake(self, worker: int, message: str) -> None:
        """Send nothing: the worker's safety poll finds the work."""

    async def wait(self, worker: int, timeout_seconds: float) -> Wake | None:
        del worker, timeout_seconds

    def close(self) -> None: ...

    def forget(self) -> None: ...
