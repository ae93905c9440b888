"""Live events: datagrams to the subscribers of all processes, or a queue in one process.

A subscriber binds a Unix datagram socket `<pid>-<id>.ear` in the private folder. A
publisher lists these sockets and sends each as many events as fit into a datagram. It never
waits. Events that do not fit into a full buffer are counted, and the next datagram that is
delivered begins with the number of missed events. In memory a subscriber is a bounded
queue.

Publishing must not disturb the publisher, so every failure is ignored.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from durio.ports.clock import Clock
from durio.ports.live import Subscriber
from durio.stores.event_buffer import (
    EVENTS_MAX,
    EventBuffer,
    bounded_event,
    missed_event,
)
from durio.stores.sqlite.store_files import Folder
from durio.stores.sqlite.wakeups import socket_address, until_readable
from durio.stores.waiting import complete

DATAGRAM_BYTES_MAX = 32 * 1024
BUFFER_BYTES = 1024 * 1024
SUBSCRIBERS_MAX = 16
SUFFIX = ".ear"


class SqliteLiveEvents(Protocol):
    """Publishes to all subscribers, and adds new ones."""

    def publish(self, events: Sequence[bytes]) -> bool:
        """Send to all subscribers; return whether there are any. Never waits, never raises."""
        ...

    def subscribe(self) -> "SqliteSubscriber": ...

    def close(self) -> None:
        """Close every subscriber of this process."""
        ...

    def forget(self) -> None:
        """Drop the parent's subscribers, in a forked child."""
        ...


class SqliteSubscriber(Subscriber, Protocol):
    def close(self) -> None: ...


# --- within one process


class LocalLiveEvents:
    """Live events for a store in memory."""

    def __init__(self) -> None:
        self._subscribers: list[LocalSubscriber] = []

    def publish(self, events: Sequence[bytes]) -> bool:
        if events:
            for subscriber in list(self._subscribers):
                subscriber.receive("", events)
        return bool(self._subscribers)

    def subscribe(self) -> "LocalSubscriber":
        subscriber = LocalSubscriber(self._subscribers)
        self._subscribers.append(subscriber)
        return subscriber

    def close(self) -> None:
        for subscriber in list(self._subscribers):
            subscriber.close()

    def forget(self) -> None:
        self._subscribers.clear()


class LocalSubscriber(EventBuffer):
    def __init__(self, subscribers: "list[LocalSubscriber]") -> None:
        super().__init__()
        self._subscribers = subscribers

    def close(self) -> None:
        with suppress(ValueError):
            self._subscribers.remove(self)
        super().close()


# --- between processes


class SocketLiveEvents:
    """Live events for all processes that use this file."""

    def __init__(self, folder: Folder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._own: set[SocketSubscriber] = set()
        self._socket: socket.socket | None = None
        self._names: tuple[str, ...] = ()
        self._missed: dict[str, int] = {}

    def publish(self, events: Sequence[bytes]) -> bool:
        has_subscribers = self._find_subscribers()
        if events:
            with suppress(OSError):
                for name in self._names:
                    self._send(name, events)
        return has_subscribers

    def _find_subscribers(self) -> bool:
        """List the sockets in the folder; forget those that no longer exist."""
        names: list[str] = []
        with suppress(OSError):
            found = os.listdir(self._folder.descriptor)  # noqa: PTH208 - by descriptor
            names = sorted(name for name in found if name.endswith(SUFFIX))
        self._names = tuple(names[:SUBSCRIBERS_MAX])
        self._missed = {n: m for n, m in list(self._missed.items()) if n in self._names}
        return bool(names)

    def _send(self, name: str, events: Sequence[bytes]) -> None:
        address = socket_address(self._folder, name)
        for datagram, size in datagrams_of(events, self._missed.pop(name, 0)):
            try:
                self._sending_socket().sendto(datagram, address)
            except OSError as error:
                if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                    # The subscriber is gone, but its file may still exist.
                    self._folder.unlink(name)
                    return
                self._missed[name] = self._missed.get(name, 0) + size

    def _sending_socket(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        return self._socket

    def subscribe(self) -> "SocketSubscriber":
        """Bind one more socket; if that fails, the subscriber receives nothing."""
        # The pid is for people; the id makes the name unique across containers.
        name = f"{os.getpid()}-{self._clock.new_id().hex()}{SUFFIX}"
        subscriber = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        subscriber.setblocking(False)
        with suppress(OSError):
            subscriber.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            subscriber.bind(socket_address(self._folder, name))
        opened = SocketSubscriber(subscriber, name, self._folder, self._own)
        self._own.add(opened)
        return opened

    def close(self) -> None:
        for subscriber in list(self._own):
            subscriber.close()
        self._close_socket()

    def forget(self) -> None:
        """Close the child's copies; the parent keeps its sockets."""
        for subscriber in list(self._own):
            subscriber.forget()
        self._own.clear()
        self._close_socket()

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._names = ()


class SocketSubscriber:
    """One bound socket, read on the loop of the caller."""

    def __init__(
        self,
        bound_socket: socket.socket,
        name: str,
        folder: Folder,
        own: "set[SocketSubscriber]",
    ) -> None:
        self._socket = bound_socket
        self._name = name
        self._folder = folder
        self._own = own
        self._is_closed = False
        self._wake: Callable[[], object] | None = None  # set during `read`

    async def read(self, timeout_seconds: float) -> list[bytes]:
        if self._is_closed:
            return []
        found = self._drain()
        if found:
            return found
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._wake = lambda: loop.call_soon_threadsafe(complete, ended)
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
            while len(found) < EVENTS_MAX:
                datagram = self._socket.recv(2 * DATAGRAM_BYTES_MAX)
                found += [line for line in datagram.split(b"\n") if line]
        return found

    def close(self) -> None:
        """Remove the socket; while `read` watches it, `read` closes it."""
        self._is_closed = True
        self._own.discard(self)
        self._folder.unlink(self._name)
        if self._wake is None:
            self._socket.close()
        else:
            with suppress(RuntimeError):  # that loop is closed, and watches nothing
                self._wake()

    def forget(self) -> None:
        """Close the copy of the parent's socket, in a forked child."""
        self._is_closed = True
        self._socket.close()


def datagrams_of(events: Sequence[bytes], missed_count: int) -> list[tuple[bytes, int]]:
    """Return datagrams of lines, each with its number of events.

    The first one begins with `missed_count`.
    """
    datagrams: list[tuple[bytes, int]] = []
    lines: list[bytes] = [missed_event(missed_count)] if missed_count else []
    size, number = sum(map(len, lines)), missed_count
    for published in events:
        event = bounded_event(published)
        if size + len(event) >= DATAGRAM_BYTES_MAX:
            datagrams.append((b"\n".join(lines), number))
            lines, size, number = [], 0, 0
        lines.append(event)
        size += len(event) + 1
        number += 1
    datagrams.append((b"\n".join(lines), number))
    return datagrams


class NoLiveEvents:
    """Used if there is no private folder: no event is delivered."""

    def publish(self, events: Sequence[bytes]) -> bool:
        del events
        return False

    def subscribe(self) -> LocalSubscriber:
        return LocalSubscriber([])

    def close(self) -> None: ...

    def forget(self) -> None: ...
