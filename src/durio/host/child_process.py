"""The worker's side of one child process: start, messages, kill of its group, exit.

Each child has a thread, which starts it, waits for its end, kills what is left of its
process group, and only then reads its exit code. Until then the kernel does not reuse the
process id, so a kill never hits another process. The thread lives as long as the child,
because a child may request from the kernel to die with the thread that started it.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import IO, Any, final

from durio.host.child_wire import (
    CONNECTION_LOST_CODE,
    READ_BYTES,
    Frames,
    ToChild,
    encode_frame,
)
from durio.model.errors import InvariantBroken

CRASH_BYTES_MAX = 16_000
EOF_SECONDS = 1.0  # another process may hold the socket open after the child's end
MODULE = "durio.app.child"
CONNECTION_LOST = (
    "its connection to the worker is closed; perhaps a task closed file descriptors "
    "that are "
    "not its own, or ran another program in place of this one"
)
NO_FRAME = "perhaps a task wrote to a file descriptor that is not its own"
PACKAGE_FOLDER = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120


@final
class ChildProcess:
    """One child process; its messages and its end are reported on the loop."""

    def __init__(
        self,
        title: str,
        *,
        on_message: Callable[[bytes], None],
        on_exit: Callable[[str, str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_exit = on_exit
        self._lock = threading.Lock()
        self._is_reaped = False
        self._frames = Frames()
        self._unsent = bytearray()
        self._is_writing = False
        self._has_eof = False
        self._exit_report: tuple[str, str] | None = None
        self.pid = 0
        self.was_killed = False
        self._kill_reason = ""  # why we killed it; empty: the worker ends
        with ExitStack() as undo:  # if one step fails, undo those before
            self._socket, theirs = socket.socketpair()
            undo.callback(self._socket.close)
            undo.callback(theirs.close)
            self._socket.setblocking(False)
            life, self._life = os.pipe()
            undo.callback(os.close, life)
            undo.callback(os.close, self._life)
            self._crash = crash_file()
            undo.callback(self._crash.close)
            self._loop.add_reader(self._socket, self._read)
            undo.callback(self._loop.remove_reader, self._socket)
            ALIVE.add(self)
            undo.callback(ALIVE.discard, self)
            fds = (theirs.fileno(), life, self._crash.fileno())
            threading.Thread(
                target=self._run_process,
                args=(title, fds),
                name="durio-child",
                daemon=True,
            ).start()
            undo.pop_all()  # from now on the child's thread closes them
        theirs.detach()

    # --- messages

    def send(self, message: ToChild) -> None:
        """Send a message; what does not fit into the socket is sent later."""
        self._unsent += encode_frame(message)
        self._write()

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the child has died, and its thread reports that
            self._unsent.clear()
        if bool(self._unsent) is not self._is_writing:
            self._is_writing = not self._is_writing
            if self._is_writing:
                self._loop.add_writer(self._socket, self._write)
            else:
                self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            messages = self._frames.feed(data)
        except InvariantBroken as error:
            self.kill(f"{error.what}; {NO_FRAME}")
            self._close_socket()
            return
        for message in messages:
            self._on_message(message)
        if not data:
            self._close_socket()
            # A child that closed its socket but still runs cannot report its outcome.
            self._loop.call_later(EOF_SECONDS, self.kill, CONNECTION_LOST)

    def _close_socket(self) -> None:
        """Close the socket: no more messages can arrive.

        The exit is reported once it is known.
        """
        if self._has_eof:
            return
        self._has_eof = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        if self._exit_report is not None:
            self._on_exit(*self._exit_report)

    # --- ending

    def kill(self, why: str = "") -> None:
        """Send SIGKILL to the child and all processes that it started."""
        self.was_killed = True
        self._kill_reason = self._kill_reason or why
        with self._lock:
            if self.pid and not self._is_reaped:
                kill_group(self.pid)

    def close_in_fork(self) -> None:
        """Close the worker's ends in a forked process, which does not own them."""
        with suppress(OSError):
            os.close(self._life)
        self._socket.close()

    # --- in the child's thread

    def _run_process(self, title: str, fds: tuple[int, int, int]) -> None:
        channel, life, _ = fds
        numbers = [str(fd) for fd in fds]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *interpreter_flags(), "-m", MODULE, *numbers, title],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                process_group=0,
            )
        except OSError as error:
            self._report_exit(f"not started: {error}")
            return
        finally:
            os.close(channel)
            os.close(life)
        with self._lock:
            self.pid = process.pid
            if self.was_killed:
                kill_group(process.pid)
        # WNOWAIT does not reap it: until then its process id is not reused.
        with suppress(ChildProcessError):  # other code of this process reaped it
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            kill_group(process.pid)
            code = process.wait()
            self._is_reaped = True
        self._report_exit(describe_exit(code, self._kill_reason))

    def _report_exit(self, how: str) -> None:
        stack = ""
        with suppress(OSError, ValueError):
            self._crash.seek(0)
            text = self._crash.read(CRASH_BYTES_MAX).decode("utf-8", "replace")
            stack = crash_stack(text)
        self._crash.close()
        os.close(self._life)
        ALIVE.discard(self)
        with suppress(RuntimeError):  # the loop is closed: no caller waits
            self._loop.call_soon_threadsafe(self._on_exit_reported, how, stack)

    def _on_exit_reported(self, how: str, stack: str) -> None:
        self._exit_report = how, stack
        if self._has_eof:
            self._on_exit(how, stack)
        else:
            # Its last messages are read first; the end of the socket follows them.
            self._loop.call_later(EOF_SECONDS, self._close_socket)


def kill_group(pid: int) -> None:
    """Send SIGKILL to a child of ours and all processes that it started."""
    for kill in (os.killpg, os.kill):  # the child may have left its group
        with suppress(ProcessLookupError, PermissionError):  # gone, or only zombies
            kill(pid, signal.SIGKILL)


def describe_exit(code: int, why: str = "") -> str:
    """Return how a process ended, in words; `why` is the reason if its worker killed it."""
    if code == CONNECTION_LOST_CODE:
        return f"exit code {code}: {CONNECTION_LOST}"
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code == signal.SIGKILL and why:
        return f"killed by its worker: {why}"
    if -code == signal.SIGKILL:
        return f"killed by {name}: perhaps out of memory"
    return f"killed by {name}"


def crash_stack(text: str) -> str:
    """Return the user's part of a crash report: the crashed thread, without our frames."""
    first, *threads = text.strip().split("\n\n")
    crashed = [thread for thread in threads if thread.startswith("Current thread")]
    lines = "\n".join([first, *crashed]).splitlines()
    # The innermost frame comes first: everything below our first frame is ours.
    ours = [n for n, line in enumerate(lines) if f'File "{PACKAGE_FOLDER}' in line]
    return "\n".join(lines[: ours[0]] if ours else lines)


def crash_file() -> IO[Any]:
    """Return an unnamed file for the last stack of a child that crashes."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("durio-crash"), "rb", buffering=0)
    import tempfile  # noqa: PLC0415 - where there is no memfd

    return tempfile.TemporaryFile(buffering=0)


def interpreter_flags() -> list[str]:
    """Return the flags of this interpreter for a child; -P excludes the current directory."""
    flags = ["-P"]
    flags += ["-O"] * sys.flags.optimize
    flags += ["-I"] * sys.flags.isolated
    if sys.flags.dev_mode:
        flags += ["-X", "dev"]
    if sys.flags.utf8_mode:
        flags += ["-X", "utf8"]
    return flags


# Closed in a forked process: open ends would keep a dead worker's children alive.
ALIVE: "weakref.WeakSet[ChildProcess]" = weakref.WeakSet()


def _close_all_in_fork() -> None:
    for child in list(ALIVE):
        child.close_in_fork()
    ALIVE.clear()


os.register_at_fork(after_in_child=_close_all_in_fork)
