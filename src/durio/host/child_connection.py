"""The child's side of its connection to the worker: two file descriptors.

*Life pipe.* A child must not outlive its worker, however the worker ends and whatever the
child does. It holds one end of a pipe that never carries data; the kernel closes the other
end when the worker dies, even by SIGKILL. On Linux the kernel then kills the child's whole
process group (F_SETSIG), even while C code holds the interpreter. On other systems a thread
waits for the end of the pipe.

*Socket.* A thread reads the worker's messages and passes them to the event loop; any thread
may send. If a worker reads slowly, its child blocks, so messages do not pile up.

The child ignores signals that request a stop, because the worker decides how long its jobs
may take. A Ctrl-C in the terminal does not reach a child, because it has a process group of
its own; signals that a service manager sends to all processes are ignored.
"""

import asyncio
import ctypes
import faulthandler
import fcntl
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, final

from durio.host.child_wire import (
    CONNECTION_LOST_CODE,
    READ_BYTES,
    Finished,
    Frames,
    FromChild,
    Setup,
    StackReply,
    StackRequest,
    ToChild,
    encode_frame,
    to_child,
)
from durio.host.signals import all_stacks

IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
WORKER_EXIT_SECONDS = (
    0.5  # a worker's death closes pipe and socket, one after the other
)


@final
class WorkerConnection:
    """The child's end of the socket and of the life pipe."""

    def __init__(self, channel: int, life: int, crash: int) -> None:
        for fd in (channel, life, crash):
            os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=channel)
        self._life = life
        self._crash = crash
        self._lock = threading.Lock()
        self._frames = Frames()
        self._messages: list[bytes] = []
        self._signals: dict[signal.Signals, Any] = {}
        self._masks = threading.local()
        self._worker = os.getppid()
        self._is_fork = False

    def attach(self) -> None:
        """Tie this process to its worker, and prepare to report a crash."""
        for each in IGNORED_SIGNALS:
            # Not SIG_IGN: programs that a task starts would inherit that.
            self._signals[each] = signal.signal(each, lambda _number, _frame: None)
        faulthandler.enable(file=self._crash)
        with suppress(OSError):
            os.setpgid(
                0, 0
            )  # the worker has done this already, but a manual start has not
        if not kill_group_on_close(self._life):
            kill_with_parent()
            watch = threading.Thread(
                target=self._exit_with_worker, name="durio-life", daemon=True
            )
            watch.start()
        if is_closed(self._life, 0):
            kill_own_group()  # the worker has died already
        # A process that a task forks must not use the connection.
        os.register_at_fork(
            before=self._block_signals,
            after_in_parent=self._unblock_signals,
            after_in_child=self._detach_in_fork,
        )

    def read_setup(self) -> Setup | None:
        """Return the first message; None if the worker has ended."""
        message = self._next_message()
        return message if isinstance(message, Setup) else None

    def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[ToChild], None],
    ) -> None:
        """Start the thread that passes every message to the loop."""

        def read() -> None:
            try:
                while (message := self._next_message()) is not None:
                    # Reply in this thread, because the loop may be blocked.
                    if isinstance(message, StackRequest):
                        self.send(StackReply(format_stacks()))
                        continue
                    with suppress(RuntimeError):  # the loop is closed: we are leaving
                        loop.call_soon_threadsafe(on_message, message)
            finally:
                self._exit_disconnected()  # no more messages can arrive

        threading.Thread(target=read, name="durio-words", daemon=True).start()

    def send(self, *messages: FromChild) -> None:
        """Send messages, from any thread; blocks while the worker does not read."""
        data = b"".join(map(encode_frame, messages))
        if self._is_fork:
            return  # the job and the connection belong to the parent
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError:
            self._exit_disconnected()

    def send_finished(self, message: Finished) -> None:
        if self._is_fork:
            os._exit(0)  # a task forked and returned in both: the parent reports
        self.send(message)

    def _next_message(self) -> ToChild | None:
        while not self._messages:
            try:
                data = self._socket.recv(READ_BYTES)
            except OSError:
                self._exit_disconnected()
            if not data:
                return None
            self._messages = self._frames.feed(data)[::-1]
        return to_child.decode(self._messages.pop())

    def _exit_disconnected(self) -> NoReturn:
        """End this process, because no outcome can be sent; another child repeats the job."""
        # Never released, because after another message the worker might send the next job.
        self._lock.acquire(timeout=WORKER_EXIT_SECONDS)
        if (
            not is_closed(self._life, WORKER_EXIT_SECONDS)
            and os.getppid() == self._worker
        ):
            os._exit(
                CONNECTION_LOST_CODE
            )  # the worker reports why, and kills our group
        kill_own_group()

    def _exit_with_worker(self) -> None:
        with suppress(OSError):
            os.read(self._life, 1)
        kill_own_group()

    # --- around a fork by a task

    def _block_signals(self) -> None:
        """Block signals until the forked process has its own handlers: ours ignore them."""
        self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _detach_in_fork(self) -> None:
        """Restore signal handlers and close our ends, in a process that a task forked."""
        self._is_fork = True
        for each, handler in self._signals.items():
            signal.signal(each, handler)
        self._unblock_signals()
        faulthandler.disable()
        self._socket.close()
        with suppress(OSError):
            os.close(self._life)


def is_closed(life: int, seconds: float) -> bool:
    """Whether the other end is closed, or is closed within this time."""
    poll = select.poll()  # select() takes no file descriptor above 1023
    poll.register(life, select.POLLIN)
    # POLLNVAL: a task closed our own end, which says nothing about the worker.
    return any(event != select.POLLNVAL for _, event in poll.poll(1000 * seconds))


def kill_group_on_close(life: int) -> bool:
    """Let the kernel kill our process group when the other end is closed.

    Returns False if this kernel cannot.
    """
    set_signal = getattr(fcntl, "F_SETSIG", None)
    if set_signal is None:
        return False
    try:
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, set_signal, signal.SIGKILL)
        flags = fcntl.fcntl(life, fcntl.F_GETFL)
        fcntl.fcntl(life, fcntl.F_SETFL, flags | os.O_ASYNC)
    except OSError:  # a sandbox without this feature
        return False
    return True


def kill_with_parent() -> None:
    """Let the kernel kill this process alone when its parent thread ends, as a fallback."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def format_stacks() -> str:
    """Return the stacks of all threads but the calling one, the main thread first."""
    mine = threading.get_ident()
    stacks = [each for each in all_stacks() if each.id != mine]
    text = "\n".join(f"thread {each.name}\n{each.stack}" for each in stacks)
    # A thread's name may not be valid text.
    return text.encode("utf-8", "replace").decode()


def kill_own_group() -> NoReturn:
    with suppress(OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)
