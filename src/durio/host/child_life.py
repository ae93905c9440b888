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
    LINE_LOST_CODE,
    READ_BYTES,
    Finished,
    Frames,
    FromChild,
    Look,
    Looked,
    Setup,
    ToChild,
    frame,
    to_child,
)
from durio.host.signals import every_stack

PASSED_OVER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
SURE_SECONDS = 0.5  # a worker's death closes both lines, one after the other


@final
class Post:
    """The lines to the worker."""

    def __init__(self, line: int, life: int, crash: int) -> None:
        for fd in (line, life, crash):
            os.set_inheritable(fd, False)
        self._line = socket.socket(fileno=line)
        self._life = life
        self._crash = crash
        self._lock = threading.Lock()
        self._frames = Frames()
        self._words: list[bytes] = []
        self._signals: dict[signal.Signals, Any] = {}
        self._masks = threading.local()
        self._worker = os.getppid()
        self._is_fork = False

    def settle_in(self) -> None:
        """Tie this process to its worker, and be ready to say where it crashes."""
        for each in PASSED_OVER:
            # Not SIG_IGN: programs that a task starts would inherit that.
            self._signals[each] = signal.signal(each, lambda _number, _frame: None)
        faulthandler.enable(file=self._crash)
        with suppress(OSError):
            os.setpgid(0, 0)  # its own already, unless somebody starts it by hand
        if not kills_group_at_end_of(self._life):
            kill_with_parent()
            watch = threading.Thread(
                target=self._outlive_nobody, name="durio-life", daemon=True
            )
            watch.start()
        if is_at_end(self._life, 0):
            end_group()  # the worker has died already
        # A process that a task forks has no share in these.
        os.register_at_fork(
            before=self._hold_signals,
            after_in_parent=self._go_on,
            after_in_child=self._let_go,
        )

    def setup(self) -> Setup | None:
        """The first word; None: the worker has gone."""
        word = self._next()
        return word if isinstance(word, Setup) else None

    def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        hear: Callable[[ToChild], None],
    ) -> None:
        """Pass every word on to the loop."""

        def read() -> None:
            try:
                while (word := self._next()) is not None:
                    if isinstance(word, Look):  # answered here: the loop may be blocked
                        self.say(Looked(told_stacks()))
                        continue
                    with suppress(RuntimeError):  # the loop is closed: we are leaving
                        loop.call_soon_threadsafe(hear, word)
            finally:
                self._cut_off()  # nothing more can be heard

        threading.Thread(target=read, name="durio-words", daemon=True).start()

    def say(self, *words: FromChild) -> None:
        """Send words, from any thread; waits while the worker does not read."""
        data = b"".join(map(frame, words))
        if self._is_fork:
            return  # the job is our parent's, and so is the line
        try:
            with self._lock:
                self._line.sendall(data)
        except OSError:
            self._cut_off()

    def finish(self, word: Finished) -> None:
        """Say how the job ended."""
        if self._is_fork:
            os._exit(0)  # a task forked and came back twice: its parent will tell
        self.say(word)

    def _next(self) -> ToChild | None:
        while not self._words:
            try:
                data = self._line.recv(READ_BYTES)
            except OSError:
                self._cut_off()
            if not data:
                return None
            self._words = self._frames.feed(data)[::-1]
        return to_child.decode(self._words.pop())

    def _cut_off(self) -> NoReturn:
        """Nobody can hear how a job ends: another child must do it again."""
        # Kept for good: a word that still got through would bring us the next job.
        self._lock.acquire(timeout=SURE_SECONDS)
        if not is_at_end(self._life, SURE_SECONDS) and os.getppid() == self._worker:
            os._exit(LINE_LOST_CODE)  # the worker says why, and ends our group
        end_group()

    def _outlive_nobody(self) -> None:
        with suppress(OSError):
            os.read(self._life, 1)
        end_group()

    # --- around a fork by a task

    def _hold_signals(self) -> None:
        """One that comes before the handlers are back would be passed over."""
        self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_OVER)

    def _go_on(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _let_go(self) -> None:
        """In a process that a task has forked: it is stopped as any other is."""
        self._is_fork = True
        for each, handler in self._signals.items():
            signal.signal(each, handler)
        self._go_on()
        faulthandler.disable()
        self._line.close()
        with suppress(OSError):
            os.close(self._life)


def is_at_end(life: int, seconds: float) -> bool:
    """Whether the other end is closed, or will be within so many seconds."""
    poll = select.poll()  # select() knows no file descriptor above 1023
    poll.register(life, select.POLLIN)
    # A task may have closed our own end: that says nothing.
    return any(event != select.POLLNVAL for _, event in poll.poll(1000 * seconds))


def kills_group_at_end_of(life: int) -> bool:
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


def told_stacks() -> str:
    """Every thread but the one that asks, the main thread's first."""
    mine = threading.get_ident()
    stacks = [each for each in every_stack() if each.id != mine]
    told = "\n".join(f"thread {each.name}\n{each.stack}" for each in stacks)
    return told.encode("utf-8", "replace").decode()  # a name may be no text at all


def end_group() -> NoReturn:
    """End this process and whatever it started."""
    with suppress(OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)
