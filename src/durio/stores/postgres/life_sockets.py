"""Life sockets: detect a dead worker on the same host before its lease ends.

A worker's process binds a datagram socket to a unique name in Linux's abstract namespace:
there is no file, and nothing to clean up. The kernel removes the name when the process
ends, for whatever reason. A stopped process keeps it. Other processes of the same boot and
network namespace try to connect. A refused connection proves that the process is dead,
because the name is never used again. No data is ever sent.

On other systems, and across hosts, the lease decides.
"""

import os
import socket
import sys
from contextlib import suppress
from typing import NamedTuple

from durio.ports.clock import Clock

PREFIX = "\0durio-"
NETWORK = "/proc/self/ns/net"


class LifeAddress(NamedTuple):
    host: str  # boot and network namespace in which the name is valid
    name: str


class PostgresLifeSockets:
    """The life sockets of this process's workers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[int, socket.socket] = {}

    def here(self) -> str | None:
        """Return the boot and network namespace; None if this system does not name them."""
        if sys.platform != "linux":
            return None
        try:
            network = os.stat(NETWORK).st_ino  # noqa: PTH116
        except OSError:
            return None
        return f"{self._clock.boot_id()}/{network}"

    def bind(self) -> tuple[LifeAddress, socket.socket] | None:
        """Return a socket for a worker to be registered; None if the system has none."""
        host = self.here()
        if host is None:
            return None
        name = f"{self._clock.new_id().hex()}-{os.getpid()}"
        try:
            life_socket = socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
            )
        except OSError:
            return None
        try:
            life_socket.bind(f"{PREFIX}{name}")
        except OSError:
            life_socket.close()
            return None
        return LifeAddress(host, name), life_socket

    def begin(self, worker: int, life_socket: socket.socket) -> None:
        """Keep the socket of a worker that is now registered, until `end`."""
        self._held[worker] = life_socket

    def end(self, worker: int) -> None:
        """Close the worker's socket; called when its row is deleted."""
        life_socket = self._held.pop(worker, None)
        if life_socket is not None:
            life_socket.close()

    def close(self) -> None:
        """Close all sockets; called in a forked child, and when the store closes."""
        for worker in list(self._held):
            self.end(worker)


def is_dead(name: str) -> bool:
    """Whether no process holds this name; only a refused connection proves it."""
    try:
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    except OSError:
        return False
    with probe:
        with suppress(OSError):
            probe.setblocking(False)
        try:
            probe.connect(f"{PREFIX}{name}")
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
