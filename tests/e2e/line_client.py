"""A plain socket that talks to the line server through the fault proxy."""

import socket
from typing import Self

import pytest

from tests.e2e.line_server import LineServer
from tests.e2e.proxy import FaultProxy
from tests.e2e.proxy_link import CHUNK_BYTES
from tests.e2e.workers import wait_until

SECONDS = 30.0
MEGABYTE = 1 << 20
CROWD = 100


class Client:
    """A plain socket that speaks in lines."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.sock = socket.create_connection(proxy.address, SECONDS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(self, line: str) -> str:
        self.send(f"{line}\n".encode())
        return self.answer().decode()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)
        self._sent += len(data)

    def send_alone(self, data: bytes) -> None:
        """Send data in a chunk of its own, which is forwarded when this returns."""
        self.send(data)
        self.proxy.journal.wait_for("forwarded up", self._sent, SECONDS)

    def answer(self) -> bytes:
        while b"\n" not in self._unread:
            data = self.sock.recv(CHUNK_BYTES)
            if not data:
                raise EOFError(self._unread)
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def send_in_vain(self, data: bytes) -> None:
        """Send while the connection is cut; expect a broken pipe or a reset."""
        with pytest.raises(OSError, match=r"Broken pipe|reset by peer"):
            self._send_and_listen(data)

    def _send_and_listen(self, data: bytes) -> None:
        self.send(data)
        self.answer()

    def take(self, size: int) -> bytes:
        got = bytearray()
        while data := self.sock.recv(min(CHUNK_BYTES, size - len(got))):
            got += data
        return bytes(got)


def wait_for_end(server: LineServer, how: str, number: int = 0) -> bytes:
    """Wait until the server has seen this end; return all that arrived on the connection."""
    talk = server.conversations
    wait_until(
        lambda: len(talk) > number and talk[number].ended == how,
        SECONDS,
        f"the server sees a {how}",
    )
    return bytes(talk[number].seen)
