"""The child's side: its life hangs on its worker's, and two lines lead there.

*Life.* A child must not outlive its worker, whatever ended that and whatever the child is
doing. It holds one end of a pipe that never carries anything; the other end is closed by
the kernel when the worker dies, even by SIGKILL. On Linux the kernel then kills the child's
whole process group by itself (F_SETSIG), also while C code holds the interpreter. Elsewhere
a thread waits for the end of the pipe.

*Words.* A thread reads what the worker says, and passes it to the event loop; anybody may
answer. A worker that reads slowly makes its child wait: nothing piles up.

Signals that ask a process to stop are the worker's business: it has its own idea of how
long its jobs may take. A terminal does not reach a child (it has a process group of its
own), and what a service manager sends to all processes is passed over.
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
WORKER_EXIT_SECONDS = 0.5  # a worker's death closes both lines, one after the other


@final
class WorkerConnection:
    """The lines to the worker."""

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
        """Tie this process to its worker, and be ready to say where it crashes."""
        for each in IGNORED_SIGNALS:
            # Not SIG_IGN: programs that a task starts would inherit that.
            self._signals[each] = signal.signal(each, lambda _number, _frame: None)
        faulthandler.enable(file=self._crash)
        with suppress(OSError):
            os.setpgid(0, 0)  # its own already, unless somebody starts it by hand
        if not kill_group_on_close(self._life):
            kill_with_parent()
            watch = threading.Thread(
                target=self._exit_with_worker, name="durio-life", daemon=True
            )
            watch.start()
        if is_closed(self._life, 0):
            kill_own_group()  # the worker has died already
        # A process that a task forks has no share in these.
        os.register_at_fork(
            before=self._block_signals,
            after_in_parent=self._unblock_signals,
            after_in_child=self._detach_in_fork,
        )

    def read_setup(self) -> Setup | None:
        """The first word; None: the worker has gone."""
        word = self._next_message()
        return word if isinstance(word, Setup) else None

    def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[ToChild], None],
    ) -> None:
        """Pass every word on to the loop."""

        def read() -> None:
            try:
                while (word := self._next_message()) is not None:
                    if isinstance(
                        word, StackRequest
                    ):  # answered here: the loop may be blocked
                        self.send(StackReply(format_stacks()))
                        continue
                    with suppress(RuntimeError):  # the loop is closed: we are leaving
                        loop.call_soon_threadsafe(on_message, word)
            finally:
                self._exit_disconnected()  # nothing more can be heard

        threading.Thread(target=read, name="durio-words", daemon=True).start()

    def send(self, *messages: FromChild) -> None:
        """Send words, from any thread; waits while the worker does not read."""
        data = b"".join(map(encode_frame, messages))
        if self._is_fork:
            return  # the job is our parent's, and so is the line
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError:
            self._exit_disconnected()

    def send_finished(self, message: Finished) -> None:
        """Say how the job ended."""
        if self._is_fork:
            os._exit(0)  # a task forked and came back twice: its parent will tell
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
        """Nobody can hear how a job ends: another child must do it again."""
        # Kept for good: a word that still got through would bring us the next job.
        self._lock.acquire(timeout=WORKER_EXIT_SECONDS)
        if (
            not is_closed(self._life, WORKER_EXIT_SECONDS)
            and os.getppid() == self._worker
        ):
            os._exit(CONNECTION_LOST_CODE)  # the worker says why, and ends our group
        kill_own_group()

    def _exit_with_worker(self) -> None:
        with suppress(OSError):
            os.read(self._life, 1)
        kill_own_group()

    # --- around a fork by a task

    def _block_signals(self) -> None:
        """One that comes before the handlers are back would be passed over."""
        self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _detach_in_fork(self) -> None:
        """In a process that a task has forked: it is stopped as any other is."""
        self._is_fork = True
        for each, handler in self._signals.items():
            signal.signal(each, handler)
        self._unblock_signals()
        faulthandler.disable()
        self._socket.close()
        with suppress(OSError):
            os.close(self._life)


def is_closed(life: int, seconds: float) -> bool:
    """Whether the other end is closed, or will be within so many seconds."""
    poll = select.poll()  # select() knows no file descriptor above 1023
    poll.register(life, select.POLLIN)
    # A task may have closed our own end: that says nothing.
    return any(event != select.POLLNVAL for _, event in poll.poll(1000 * seconds))


def kill_group_on_close(life: int) -> bool:
    """Let the kernel kill our process group when the other end is closed."""
    set_signal = getattr(fcntl, "F_SETSIG", None)
    if set_signal is None:
        return False
    try:
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, set_signal, signal.SIGKILL)
        flags = fcntl.fcntl(life, fcntl.F_GETFL)
        fcntl.fcntl(life, fcntl.F_SETFL, flags | os.O_ASYNC)
    except OSError:  # a sandbox that has no such thing
        return False
    return True


def kill_with_parent() -> None:
    """The second best: only this very process, when the thread that started it ends."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def format_stacks() -> str:
    """Every thread but the one that asks, the main thread's first."""
    mine = threading.get_ident()
    stacks = [each for each in all_stacks() if each.id != mine]
    told = "\n".join(f"thread {each.name}\n{each.stack}" for each in stacks)
    return told.encode("utf-8", "replace").decode()  # a name may be no text at all


def kill_own_group() -> NoReturn:
    """End this process and whatever it started."""
    with suppress(OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)
