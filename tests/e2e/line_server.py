"""A tiny real TCP server, for what happens to a conversation on its way.

It reads lines and answers each. It keeps every byte that arrived, by connection, and every
COMMIT that it has executed, whether or not anybody heard the answer.

  COMMIT <word>   executed, answered with "COMMITTED <word>"
  TAKE <n>        the next n bytes are taken in, answered with their digest
  GIVE <n>        answered with n bytes of `ballast`
  anything else   answered with the same line
"""

import hashlib
import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Self

READ_BYTES = 64 * 1024


@cache
def ballast(size: int) -> bytes:
    """Return bytes that are unique at every position, and the same every time."""
    return random.Random(size).randbytes(size)  # noqa: S311 - no secret


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


class Conversation:
    """One connection, seen from the server."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.seen = bytearray()
        self.ended = ""  # "end" or "reset", once it is over
        self._unread = bytearray()

    def line(self) -> bytes:
        while b"\n" not in self._unread:
            self._receive()
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread[:] = rest
        return line

    def take(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._receive()
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken

    def _receive(self) -> None:
        data = self.sock.recv(READ_BYTES)
        if not data:
            raise EOFError
        self.seen += data
        self._unread += data


class LineServer:
    """A server with one thread per connection; all of them end with it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address: tuple[str, int] = self._listener.getsockname()
        self.conversations: list[Conversation] = []
        self.committed: list[str] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()  # then no new connection is accepted
        self._listener.close()
        for each in self.conversations:
            with suppress(OSError):
                each.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conversation = Conversation(sock)
            self.conversations.append(conversation)
            self._start(self._talk, conversation)

    def _talk(self, conversation: Conversation) -> None:
        with conversation.sock:
            try:
                while True:
                    line = conversation.line()
                    conversation.sock.sendall(self._answer(line, conversation) + b"\n")
            except EOFError:
                conversation.ended = "end"
            except OSError:
                conversation.ended = "reset"

    def _answer(self, line: bytes, conversation: Conversation) -> bytes:
        verb, _, rest = line.partition(b" ")
        if verb == b"COMMIT":
            self.committed.append(rest.decode())
            return b"COMMITTED " + rest
        if verb == b"TAKE":
            return digest(conversation.take(int(rest)))
        if verb == b"GIVE":
            return ballast(int(rest))
        return line
