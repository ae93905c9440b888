"""Ears: who listens to what happens, by datagrams between processes or within one.

A listener is an ear: a Unix datagram socket `<pid>-<id>.ear` in the private folder. Tellers
look for ears, and send each as many events as fit into a datagram. They never wait: what a
full buffer does not take is counted, and the next datagram that gets through begins with
how many events are missing. In memory an ear is a bounded line.

Nothing here may disturb whoever tells: every failure ends in silence.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from durio.ports.clock import Clock
from durio.ports.live import Listener
from durio.stores.sqlite.bell import settle, socket_address, until_readable
from durio.stores.sqlite.folder import Folder

DATAGRAM_BYTES_MAX = 32 * 1024
EVENT_BYTES_MAX = DATAGRAM_BYTES_MAX // 2
BUFFER_BYTES = 1024 * 1024
LINE_MAX = 10_000  # events kept for an ear that is slow to read
EARS_MAX = 16
SUFFIX = ".ear"


class Ears(Protocol):
    """Everybody who listens, and a way to join them."""

    def is_heard(self) -> bool:
        """Whether anybody listens."""
        ...

    def tell(self, events: Sequence[bytes]) -> None:
        """Give these to all of them."""
        ...

    def open_ear(self) -> "Ear":
        """One more."""
        ...

    def close(self) -> None:
        """Close every ear of this process."""
        ...

    def forget(self) -> None:
        """In a forked child: the ears are the parent's."""
        ...


class Ear(Listener, Protocol):
    """A listener that can be closed."""

    def close(self) -> None:
        """Listen no more."""
        ...


def missed(events: int) -> bytes:
    """What a listener reads in place of events that it did not get."""
    return msgspec.json.encode({"event": "live.missed", "events": events})


# --- within one process


class LocalEars:
    """Ears of a store in memory."""

    def __init__(self) -> None:
        self._ears: list[LocalEar] = []

    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._ears)

    def tell(self, events: Sequence[bytes]) -> None:
        """Put them into every line."""
        for ear in list(self._ears):
            ear.hear(events)

    def open_ear(self) -> "LocalEar":
        """One more line."""
        ear = LocalEar(self._ears)
        self._ears.append(ear)
        return ear

    def close(self) -> None:
        """Let everybody go."""
        for ear in list(self._ears):
            ear.close()

    def forget(self) -> None:
        """Nobody in the child listens."""
        self._ears.clear()


class LocalEar:
    """A bounded line, filled from any thread and read on any loop."""

    def __init__(self, ears: "list[LocalEar]") -> None:
        self._ears = ears
        self._line: deque[bytes] = deque()
        self._missed = 0
        self._wake: Callable[[], object] | None = None
        self._is_closed = False

    def hear(self, events: Sequence[bytes]) -> None:
        """Take what there is room for, and wake the reader."""
        room = max(0, LINE_MAX - len(self._line))
        self._line.extend(events[:room])
        self._missed += len(events[room:])
        if self._wake is not None:
            self._wake()

    async def read(self, timeout_seconds: float) -> list[bytes]:
        """What came in; none when the time is over."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(settle, ended)

        # First listen, then look.
        self._wake = wake
        timer = loop.call_later(timeout_seconds, settle, ended)
        try:
            if not self._line and not self._is_closed:
                await ended
        finally:
            timer.cancel()
            self._wake = None
        found = [self._line.popleft() for _ in range(len(self._line))]
        if self._missed:
            found.append(missed(self._missed))
            self._missed = 0
        return found

    def close(self) -> None:
        """Take no more."""
        self._is_closed = True
        with suppress(ValueError):
            self._ears.remove(self)
        if self._wake is not None:
            self._wake()


# --- between processes


class SocketEars:
    """Ears that every process on this file can reach."""

    def __init__(self, folder: Folder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._mine: set[SocketEar] = set()
        self._mouth: socket.socket | None = None
        self._names: tuple[str, ...] = ()
        self._missed: dict[str, int] = {}

    def is_heard(self) -> bool:
        """Whether there is an ear in the folder."""
        names: list[str] = []
        with suppress(OSError):
            found = os.listdir(self._folder.descriptor)  # noqa: PTH208 - by descriptor
            names = sorted(name for name in found if name.endswith(SUFFIX))
        self._names = tuple(names[:EARS_MAX])
        self._missed = {n: m for n, m in list(self._missed.items()) if n in self._names}
        return bool(names)

    def tell(self, events: Sequence[bytes]) -> None:
        """Send every ear what fits, without waiting."""
        if not events or not self.is_heard():
            return
        with suppress(OSError):
            for name in self._names:
                self._send(name, events)

    def _send(self, name: str, events: Sequence[bytes]) -> None:
        address = socket_address(self._folder, name)
        for datagram, size in packed(events, self._missed.pop(name, 0)):
            try:
                self._voice().sendto(datagram, address)
            except OSError as error:
                if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                    # Its owner is gone, with or without its file.
                    self._folder.unlink(name)
                    return
                self._missed[name] = self._missed.get(name, 0) + size

    def _voice(self) -> socket.socket:
        if self._mouth is None:
            self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._mouth.setblocking(False)
            self._mouth.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        return self._mouth

    def open_ear(self) -> "SocketEar":
        """Bind one more socket; a place without sockets hears nothing."""
        # The pid is for people: two containers may have the same.
        name = f"{os.getpid()}-{self._clock.new_id().hex()}{SUFFIX}"
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setblocking(False)
        with suppress(OSError):
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            ear.bind(socket_address(self._folder, name))
        opened = SocketEar(ear, name, self._folder, self._mine)
        self._mine.add(opened)
        return opened

    def close(self) -> None:
        """Close what is open."""
        for ear in list(self._mine):
            ear.close()
        self._shut()

    def forget(self) -> None:
        """Close the child's copies; the parent listens on."""
        for ear in list(self._mine):
            ear.forget()
        self._mine.clear()
        self._shut()

    def _shut(self) -> None:
        if self._mouth is not None:
            self._mouth.close()
        self._mouth = None
        self._names = ()


class SocketEar:
    """One bound socket, read on whatever loop asks."""

    def __init__(
        self, ear: socket.socket, name: str, folder: Folder, mine: "set[SocketEar]"
    ) -> None:
        self._socket = ear
        self._name = name
        self._folder = folder
        self._mine = mine
        self._is_closed = False
        self._wake: Callable[[], object] | None = None  # while somebody reads

    async def read(self, timeout_seconds: float) -> list[bytes]:
        """What came in; none when the time is over."""
        if self._is_closed:
            return []
        found = self._drain()
        if found:
            return found
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._wake = lambda: loop.call_soon_threadsafe(settle, ended)
        try:
            await until_readable(self._socket, ended, timeout_seconds)
        finally:
            self._wake = None
            found = self._drain()
            if self._is_closed:
                self._socket.close()
        return found

    def _drain(self) -> list[bytes]:
        found: list[bytes] = []
        with suppress(OSError):
            while len(found) < LINE_MAX:
                datagram = self._socket.recv(2 * DATAGRAM_BYTES_MAX)
                found += [line for line in datagram.split(b"\n") if line]
        return found

    def close(self) -> None:
        """Take the ear down; a reader closes what it watches."""
        self._is_closed = True
        self._mine.discard(self)
        self._folder.unlink(self._name)
        if self._wake is None:
            self._socket.close()
        else:
            with suppress(RuntimeError):  # that loop is closed: so is its watch
                self._wake()

    def forget(self) -> None:
        """Close a copy that belongs to another process."""
        self._is_closed = True
        self._socket.close()


def packed(events: Sequence[bytes], behind: int) -> list[tuple[bytes, int]]:
    """Datagrams of lines, each with the number of its events; first what is missing."""
    datagrams: list[tuple[bytes, int]] = []
    lines: list[bytes] = [missed(behind)] if behind else []
    size, number = sum(map(len, lines)), behind
    for told in events:
        # One that is too long for a datagram is missed.
        event = told if len(told) <= EVENT_BYTES_MAX else missed(1)
        if size + len(event) >= DATAGRAM_BYTES_MAX:
            datagrams.append((b"\n".join(lines), number))
            lines, size, number = [], 0, 0
        lines.append(event)
        size += len(event) + 1
        number += 1
    datagrams.append((b"\n".join(lines), number))
    return datagrams


class NoEars:
    """Where nobody can listen."""

    def is_heard(self) -> bool:
        """Nobody does."""
        return False

    def tell(self, events: Sequence[bytes]) -> None:
        """Into the wind."""

    def open_ear(self) -> LocalEar:
        """An ear that nobody reaches."""
        return LocalEar([])

    def close(self) -> None:
        """Nothing to close."""

    def forget(self) -> None:
        """Nothing to forget."""
