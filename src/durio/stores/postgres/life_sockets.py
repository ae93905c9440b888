"""Life marks: how a worker's death is seen at once by its neighbours on the same host.

A worker's process binds a datagram socket to a name that nobody else will ever have, in
Linux's abstract namespace: no file, nothing to clean up. The kernel takes it down with the
process, however that ends; a process that is stopped keeps it. Whoever can see the name at
all (same boot, same network namespace) tries to connect: refused means dead, and dead for
good, for the name never comes back. Nothing is ever sent.

Elsewhere, and across hosts, the lease decides.
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
    """Where to look for a sign of life."""

    host: str  # boot and network namespace: only within these the name means anything
    name: str


class PostgresLifeSockets:
    """The life marks of this process's workers, and a look at those of others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[int, socket.socket] = {}

    def here(self) -> str | None:
        """Where this process's names can be seen; None: there are no such names."""
        if sys.platform != "linux":
            return None
        try:
            network = os.stat(NETWORK).st_ino  # noqa: PTH116
        except OSError:
            return None
        return f"{self._clock.boot_id()}/{network}"

    def bind(self) -> tuple[LifeAddress, socket.socket] | None:
        """A mark for a worker that is about to be registered; None: it has none."""
        host = self.here()
        if host is None:
            return None
        name = f"{self._clock.new_id().hex()}-{os.getpid()}"
        try:
            sign = socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
            )
        except OSError:
            return None
        try:
            sign.bind(f"{PREFIX}{name}")
        except OSError:
            sign.close()
            return None
        return LifeAddress(host, name), sign

    def begin(self, worker: int, sign: socket.socket) -> None:
        """The worker is registered: its mark stays as long as the process does."""
        self._held[worker] = sign

    def end(self, worker: int) -> None:
        """The worker's row is gone."""
        sign = self._held.pop(worker, None)
        if sign is not None:
            sign.close()

    def close(self) -> None:
        """Let every mark go: in a forked child, or when the store closes."""
        for worker in list(self._held):
            self.end(worker)


def is_dead(name: str) -> bool:
    """Whether nobody has this name any more; whatever else goes wrong is no proof."""
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
