"""Worker processes of a supervisor: started, read from, signalled and reaped.

Each is a new program in a process group of its own, with one socket to its supervisor. A
worker sends lines of JSON; the supervisor sends single words. When the supervisor dies the
socket closes, and the worker drains by itself, so no orphan is left.
"""

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import final

import msgspec

from durio.host.signals import on_child_end
from durio.host.systemd_notify import NOTIFY_VARIABLES
from durio.ports.fleet import ProcessMessage, SendProcessMessage

READ_BYTES = 65536
UNREAD_BYTES_MAX = 1024 * 1024  # maximum of a line without a newline
UNSENT_BYTES_MAX = 65536  # to a process that does not read: more is dropped
LOOK = b"look"


@final
class MessagePipe:
    """One end of the socket between a supervisor and a worker process."""

    def __init__(self, end_socket: socket.socket) -> None:
        end_socket.setblocking(False)
        end_socket.set_inheritable(False)
        self._socket = end_socket
        self._lock = threading.Lock()  # heartbeats are sent from another thread
        self._unsent = b""
        self._unread = b""
        self.is_open = True

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, line: bytes) -> None:
        """Send a line without waiting; dropped if the other end does not read."""
        with self._lock:
            if len(self._unsent) < UNSENT_BYTES_MAX:
                self._unsent += line + b"\n"
            # If the other end does not read now, the rest is sent with the next line.
            with suppress(OSError):
                self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def read(self) -> list[bytes]:
        """Return all lines that have arrived; `is_open` says whether more may come."""
        lines: list[bytes] = []
        while self.is_open:
            try:
                got = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                got = b""
            *ended, self._unread = (self._unread + got).split(b"\n")
            lines += ended
            self.is_open = bool(got) and len(self._unread) <= UNREAD_BYTES_MAX
        return lines

    def close(self) -> None:
        self._socket.close()


@final
class StartedWorker:
    """One worker process, from its supervisor's side."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        pipe: MessagePipe,
        on_message: SendProcessMessage,
        on_exit: Callable[[int], None],
    ) -> None:
        self._process = process
        self._pipe = pipe
        self._on_message = on_message
        self._on_exit = on_exit
        self.pid = process.pid

    def signal(self, name: str) -> None:
        self._process.send_signal(signal.Signals[name])

    def kill(self) -> None:
        if self._process.poll() is None:  # not reaped: the id has not been reused
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def look_for_deaths(self) -> None:
        self._pipe.send(LOOK)

    def fileno(self) -> int:
        return self._pipe.fileno()

    def read(self) -> bool:
        """Deliver its messages; return False if its end of the socket is closed."""
        for line in self._pipe.read():
            with suppress(msgspec.MsgspecError):  # not one of our messages
                self._on_message(msgspec.json.decode(line, type=ProcessMessage))
        return self._pipe.is_open

    def close(self) -> None:
        """Deliver the remaining messages and the exit code, after the process has ended."""
        self.read()
        self.close_pipe()
        self._on_exit(self._process.returncode)

    def close_pipe(self) -> None:
        """Close the socket, by which the worker sees that its supervisor is gone."""
        self._pipe.close()

    @property
    def is_running(self) -> bool:
        """Whether the process still runs; reaps it if it has ended."""
        return self._process.poll() is None


@final
class ProcessFleet:
    """Starts processes with this command, on the running loop."""

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[str] = (),
        *,
        folder: str | None = None,
        without: Collection[str] = (),
    ) -> None:
        self._command = list(command)
        self._arguments = list(arguments)
        self._folder = folder
        self._without = NOTIFY_VARIABLES.union(without)
        self._running: list[StartedWorker] = []
        self._loop = asyncio.get_running_loop()
        self._undo = on_child_end(self.reap)

    def start(
        self, on_message: SendProcessMessage, on_exit: Callable[[int], None]
    ) -> StartedWorker:
        """Start a worker; the file descriptor of its socket follows the command."""
        ours, theirs = socket.socketpair()
        environ = {k: v for k, v in os.environ.items() if k not in self._without}
        try:
            with theirs:
                process = subprocess.Popen(  # noqa: S603 - our own program
                    [*self._command, str(theirs.fileno()), *self._arguments],
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    env=environ,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,  # the terminal's Ctrl-C is for the supervisor
                )
        except OSError:
            ours.close()
            raise
        worker = StartedWorker(process, MessagePipe(ours), on_message, on_exit)
        self._running.append(worker)
        self._loop.add_reader(worker.fileno(), self._read, worker)
        return worker

    def _read(self, worker: StartedWorker) -> None:
        if not worker.read():
            self._loop.remove_reader(worker.fileno())

    def reap(self) -> None:
        """Report and forget the processes that have ended."""
        for worker in [each for each in self._running if not each.is_running]:
            self._running.remove(worker)
            self._loop.remove_reader(worker.fileno())
            worker.close()

    def close(self) -> None:
        """Leave the loop; workers that still run see their socket close, and drain."""
        self._undo()
        for worker in self._running:
            self._loop.remove_reader(worker.fileno())
            worker.close_pipe()


@final
class SupervisorPipe:
    """A worker's connection to the supervisor that started it."""

    def __init__(self, number: int) -> None:
        self._pipe = MessagePipe(socket.socket(fileno=number))

    def send_message(self, message: ProcessMessage) -> None:
        """Send to the supervisor; from any thread."""
        self._pipe.send(msgspec.json.encode(message))

    def listen(
        self, on_look: Callable[[], None], on_closed: Callable[[], None]
    ) -> None:
        """Call `on_look` after a death on this host, `on_closed` at the supervisor's end."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            if LOOK in self._pipe.read():
                on_look()
            if not self._pipe.is_open:
                loop.remove_reader(self._pipe.fileno())
                on_closed()

        loop.add_reader(self._pipe.fileno(), read)
